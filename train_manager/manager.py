"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

The methods that a subclass overrides are in ``loop/overridable.py``; what one run asks and counts is in
``loop/run_state.py``, where its batches come from in ``loop/feed.py``. Everything else is an extension.
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.decorators import fixture, overridable
from train_manager.core.errors import InputError, StageError
from train_manager.core.extension import Extensions, named
from train_manager.core.schedule import Schedule
from train_manager.data.batch import parts_of, to_device
from train_manager.data.iteration import no_batch
from train_manager.loop.arguments import (
    TrainsItself,
    bind_loss,
    make_train_dir,
    require_data,
    require_eval_data,
    require_eval_step,
    require_example_index,
    require_finite_epochs,
    require_loss,
    require_model,
    require_ready_to_train,
    require_train_data,
    require_train_dir,
    require_train_dir_for_hooks,
    warn_of_hooks_that_never_ran,
    warn_of_idle_hooks,
)
from train_manager.loop.control import LoopControl
from train_manager.loop.eval_at import NEVER, EvalAtPoints, eval_at_schedule, require_eval_at
from train_manager.loop.feed import END, Feed, epoch_length, eval_batches
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.modes import mode, preserved_modes
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    OptimizerArgument,
    require_lr_schedule,
    require_optimizer,
    require_optimizer_of,
    step_schedulers,
)
from train_manager.loop.outputs import (
    count_rows,
    joined,
    require_batch_size,
    require_no_value,
    require_parts,
    require_prediction,
    require_scalar_loss,
    require_tensor,
    require_training_loss,
)
from train_manager.loop.randomness import preserved_random_state, seed_all
from train_manager.loop.requests import DATA_ENDED, NOTHING, SKIP_BATCH, Requests
from train_manager.loop.results import EvalResult, TrainResult
from train_manager.loop.run_state import Counts, RunState
from train_manager.loop.skip import SkipBatch, skippable
from train_manager.loop.windows import Windows, needs_closure, once_known, preserved_gradients
from train_manager.metrics.averages import WeightedMean
from train_manager.validation import require_count


class TrainManager(LoopControl):
    """Train and evaluate a model; use it as it is, or subclass it and override what differs.

    >>> import torch
    >>> from torch import nn
    >>> from train_manager import TrainManager
    >>> x = torch.linspace(-1, 1, 32).unsqueeze(1)
    >>> batches = [(x, 2 * x + 1)] * 20
    >>> tm = TrainManager(
    ...     model=nn.Linear(1, 1), loss=nn.functional.mse_loss, epochs=5, train_data=batches,
    ...     eval_data={"train": batches[:1]}, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=.3))
    >>> result = tm.train()
    >>> tm.eval()["train"]["loss"] < 1e-3
    True

    Args:
        model: a module; or any object with ``train_step(batch)``, which does a whole step and returns the loss (and,
            to be evaluated, with ``eval_step(batch)``): it needs no loss and no optimizer.
        loss: ``loss(prediction, targets)``; or any function of fixtures, if one of its required parameters is called
            ``prediction``; or an ``Objective``. May be left out if ``loss_forward`` is overridden or the model calls
            ``add_loss``.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them. A class of
            torch's is made ``fused`` if all parameters are on a GPU; any other callable is called as it is.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated before the first epoch and after every epoch. An
            iterable without a name is called "eval".
        epochs: the number of epochs in all; a second ``train()`` goes on to that number.
        steps_per_epoch: cuts endless data into epochs of this many batches.
        lr_schedule: a callable that makes a torch scheduler of the optimizer; stepped after each epoch.
        device: the device that the model and the batches are moved to; None leaves both as they are.
        seed: for the random states of python, numpy and torch, once, as the first run opens; None touches none.
        train_dir: folder for the files of extensions; None writes nothing.
        extensions: a list, or a dict of names.

    Attributes:
        epoch_num: epochs completed.
        step_num: batches trained on, without those that were skipped.
        update_num: optimizer steps done.
        samples_seen: examples in those batches.
        start_step: ``step_num`` as the present or last training call began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        datasource_name: the set of ``Interleaved`` data that the batch is of; "train" if there is one set only.
        stop_reason: the reason that ``stop`` was given in the last run; None if it was not called.

    Raises:
        InputError: an argument is invalid.
        NonFiniteLoss: a loss was nan or infinite; raised at the latest at the end of the epoch.
    """

    _called_model: Any = None
    _held: ExitStack | None = None

    def __init__(
        self,
        *,
        model: nn.Module | TrainsItself,
        loss: Callable[..., Tensor] | Objective | None = None,
        optimizer: OptimizerArgument | Mapping[str, OptimizerArgument] | None = None,
        train_data: Iterable[Any] | None = None,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        eval_at: str | Schedule | Iterable[str | Schedule] = ("start", "epoch"),
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        lr_schedule: Callable[[Optimizer], Any] | Mapping[str, Callable[[Optimizer], Any]] | None = None,
        device: torch.device | str | None = None,
        seed: int | None = None,
        train_dir: Path | str | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        super().__init__()
        self.device = None if device is None else torch.device(device)
        self.model = require_model(model, self.device)
        self.objective = loss if isinstance(loss, Objective) else None
        self.loss = require_loss(loss.loss if isinstance(loss, Objective) else loss, self.device)
        self._named_loss = self.loss, bind_loss(self.loss)  # here, so that an unusable one is refused at once
        self.optimizer = require_optimizer(optimizer, self.model, self.loss)
        self.lr_schedule = require_lr_schedule(lr_schedule, self.optimizer)
        self.train_data = require_train_data(train_data)
        self.eval_data = require_eval_data(eval_data)
        self.eval_at = require_eval_at(eval_at)
        self.epochs = require_count(epochs, "epochs", at_least=0)
        self.steps_per_epoch = (
            None if steps_per_epoch is None else require_count(steps_per_epoch, "steps_per_epoch", at_least=1)
        )
        self.seed = None if seed is None else require_count(seed, "seed", at_least=0)
        self.train_dir = require_train_dir(train_dir)
        self._has_run = False
        self._run = RunState(None, step_num=0, epoch_num=0, call=0)
        self._counts = Counts()
        self._feed = Feed()
        self._windows = Windows()
        self._collector = Collector()
        self._step_seconds = deque(maxlen=1001)
        self._registry.add(named(extensions))
        if self.objective is not None:
            self.add_extension(self.objective, "objective")
        for schedule in self.eval_at.schedules:
            self.add_extension(eval_at_schedule(schedule))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts, feeds and collects for itself."""
        state = super().__getstate__()
        parts = {name: copy.copy(state[name]) for name in ("_run", "_feed")}
        own = {"_counts": copy.deepcopy(state["_counts"]), "_windows": Windows(), "_collector": Collector()}
        return {**state, **parts, **own, "_chosen": None, "_held": None}

    # ---- to be called --------------------------------------------------------------------------------------------

    def train(self) -> TrainResult:
        """Train until ``epochs`` epochs are done, those of a loaded checkpoint included; evaluate as ``eval_at`` says.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        result = self._train_in_run("train", epochs=max(1, self.epochs - self.epoch_num))
        if self._run.epochs_asked == 0:
            warnings.warn(
                f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done "
                "(raise `epochs`, or call train_epochs(n))",
                stacklevel=2,
            )
        return result

    def train_epochs(self, n: int) -> TrainResult:
        """Train ``n`` epochs more, whatever ``epochs`` says; an unfinished epoch is the first of them."""
        return self._train_in_run("train_epochs", epochs=require_count(n, "n", at_least=0))

    def train_steps(self, n: int) -> TrainResult:
        """Train on ``n`` batches more, from where the last call left the data; epochs end and begin on the way."""
        return self._train_in_run("train_steps", steps=require_count(n, "n", at_least=0))

    def train_epoch(self) -> TrainResult:
        """Train one epoch and evaluate nothing, in a loop of your own.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for _ in range(3):
        ...         result = tm.train_epoch()
        >>> tm.epoch_num, tm.step_num
        (3, 9)
        """
        return self._train_in_run("train_epoch", epochs=1, evaluates=False)

    def train_on_batch(self, batch: Any, last_batch: bool = False) -> Tensor | None:
        """Do one training step on a batch, in a loop of your own. Its hooks run; epochs do not move.

        Hold a run open around the loop: gradients that ``Accumulate`` gathers do not outlive a run.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in tm.train_data:
        ...         loss = tm.train_on_batch(batch)
        >>> tm.step_num
        3

        Args:
            batch: a batch as ``train_data`` would give it.
            last_batch: the fixture of this name: whether an epoch of yours ends with it.

        Returns:
            The loss, without its graph and still on its device; None if a hook has skipped the batch.
        """
        self._refuse_inside("train_on_batch", "train", "eval", "train_step_batch")
        require_ready_to_train(self.model, bool(self.optimizers), [batch], 1, {}, 0)
        with self._methods_chosen():
            loss = self._train_on_batch_in_run(batch, last_batch)
        return None if loss is None else loss.detach()

    def eval(self, data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now; or other data, in place of it for this once.

        Returns:
            The results of each set, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan if all batches
            of the set were skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._refuse_inside("eval", "train_step_batch", "eval", "predict")
        sets = self.eval_data if data is None else require_eval_data(data)
        if not sets:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        with self._methods_chosen():
            return self._eval_in_run("eval", sets) or {}

    def eval_on_batch(self, batch: Any) -> EvalResult:
        """Evaluate one batch, as an evaluation set called "batch".

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> list(tm.eval_on_batch(tm.train_data[0]))
        ['loss']
        """
        self._refuse_inside("eval_on_batch", "train_step_batch", "eval")
        with self._methods_chosen():
            return (self._eval_in_run("eval_on_batch", {"batch": [batch]}) or {}).get("batch", {})

    def predict(self, data: Iterable[Any]) -> Any:
        """Return the predictions of the model, in eval mode and without gradients; random states stay as they are.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.predict(torch.rand(5, 2)).shape
        torch.Size([5, 2])

        Args:
            data: batches as ``eval_data`` has them, whose targets are ignored; or one tensor, which is one batch.

        Returns:
            One tensor with a row for each example; or a list of the batches' predictions, if they cannot be joined.
        """
        self._refuse_inside("predict", "train_step_batch", "eval", "predict")
        with self._methods_chosen():
            return self._predict_in_run([data] if isinstance(data, Tensor) else require_data(data, "data"))

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and the others join it inside the ``with``."""
        return self._in_run(entry=None)

    def open(self) -> None:
        """Hold a run open until ``close``, where a ``with tm.run():`` would be in the way, as in a notebook.

        Raises:
            StageError: a run is open.
        """
        self._refuse_inside("open", "run")
        self._held = ExitStack()
        self._held.enter_context(self._new_run(None))

    def close(self) -> None:
        """End the run that ``open`` has begun; if there is none, do nothing."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @fixture("train_step_batch")
    def last_batch(self) -> bool:
        """Whether the epoch's data ends with this batch; if its length is unknown, this looks one batch ahead."""
        return self._is_last_batch()

    @fixture("train_step_batch")
    def example_index(self) -> Any:
        """The rows of this batch in the data set, if the data knows them (``InMemory``, ``Rows``)."""
        return require_example_index(self.train_data, self._run.own_batches > 0)

    # ---- what is done with a batch -------------------------------------------------------------------------------

    @overridable
    def train_batch(self) -> None:
        """Train on a batch: to be overridden, called by fixture names, and free to update as often as it likes.

        >>> from train_manager import TrainManager
        >>> class Distill(TrainManager):
        ...     def train_batch(self, model, inputs, targets):
        ...         prediction = model(inputs)
        ...         self.update(nn.functional.mse_loss(prediction, targets) + prediction.square().mean())
        """
        self.update(self.forward())

    @overridable
    def eval_batch(self) -> None:
        """Evaluate a batch: to be overridden, called by fixture names. An own one may set ``fixtures["loss"]``."""
        self.forward()

    def forward(self) -> Tensor:
        """Open the stages of the forward pass, those of eval in ``eval_batch``; return the loss as hooks left it."""
        if "eval_step_batch" in self._store.open:
            self._eval_model_forward()
            self._eval_loss_forward()
        else:
            self._train_model_forward()
            self._train_loss_forward()
            self._run.hooked_loss = self.fixtures["loss"]
        loss: Tensor = self.fixtures["loss"]
        return loss

    def update(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Run ``backward`` and ``step``, for one of the optimizers by its name.

        Args:
            loss: a scalar; or a function that computes it, which optimizers with a closure (LBFGS) and ``SAM`` call
                again. The loss of ``forward()`` needs no function.
            optimizer: its name; may be left out if there is only one.
            retain_graph: keep the graph for another backward.

        Raises:
            InputError: the optimizer is not named, or the loss is not a scalar with a gradient.
            StageError: no batch is being trained on.
        """
        self.backward(loss, optimizer, retain_graph=retain_graph)
        self.step(optimizer)

    def backward(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Add the gradients of a loss to the window of an optimizer, which begins with gradients of zero."""
        name = self._named_in_batch(optimizer, "backward")
        self._windows.require_one_update(name)
        run = self._run
        again: Callable[[], Tensor] | None = None
        if callable(loss) and not isinstance(loss, Tensor):
            again, loss = loss, loss()
        if loss is run.hooked_loss:
            again = self._forward_again
        else:
            self.fixtures["losses"][name] = run.add_update(name, require_training_loss(loss))
        self._train_backward(require_tensor(loss, "loss"), name, self.optimizers[name], again, retain_graph)

    def step(self, optimizer: str | None = None) -> None:
        """Step an optimizer if its window ends with this batch (``update_ends``) and has had a backward."""
        name = self._named_in_batch(optimizer, "step")
        windows = self._windows
        windows.asked_to_step.add(name)
        if name in windows and self.fixtures["update_ends"]:
            windows.touched.add(name)  # hooks of the step may change the gradients, and fail then
            self._train_optimizer_step(name, windows[name].optimizer)
            windows.close(name)  # also if a hook has skipped the stage

    def closure(self, optimizer: str | None = None) -> Callable[[], Tensor]:
        """Return a function that computes the loss of the last backward anew, with its gradients, as torch's closures.

        It opens no stage, so hooks of ``train_optimizer_step`` may call it. Fixtures keep their values.

        Raises:
            InputError: the loss was given as a tensor, or the gradients are not those of one plain loss.
        """
        name = self._named_in_batch(optimizer, "closure")
        return partial(self._loss_again, name, self._windows[name].require_loss_again(name))

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Set train or eval mode, with or without gradients, for a ``with`` block; restored per submodule."""
        return mode(*self._modules(), training=training)

    @property
    def called_model(self) -> Any:
        """What the loop calls, the fixture ``model``: the model itself, or its compiled or wrapped form once it is set.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.called_model = nn.Sequential(tm.model)   # as torch.compile(tm.model) would
        """
        return self.model if self._called_model is None else self._called_model

    @called_model.setter
    def called_model(self, value: Any) -> None:
        self._called_model = None if value is self.model else value
        if "model" in self.fixtures:
            self.fixtures.modify("model", value)

    # ---- a run ---------------------------------------------------------------------------------------------------

    def _in_run(self, entry: str | None) -> AbstractContextManager[None]:
        """Join the run that is open; else open one, entered by the method of that name."""
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)
        given: dict[str, Any] = {  # with its names, for `check` and `explain` read them here
            "model": self.called_model,
            "phase_name": None,
            "epoch_num": self.epoch_num,
            "step_num": self.step_num,
            "update_num": self.update_num,
            "samples_seen": self.samples_seen,
            "start_step": self.step_num,
            "end_step": None,
            "standalone_eval": entry in ("eval", "eval_on_batch"),
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        with preserved_modes(*self._modules()), self._windows, self.staged("run", given):
            if not self._has_run:
                self.call_by_name(self.initialize_params)
                self._has_run = True
            self._load_checkpoint()
            # A checkpoint has set the attributes. One by one: `check` could not follow `self` into a getattr.
            self.fixtures.modify("epoch_num", self.epoch_num)
            self.fixtures.modify("step_num", self.step_num)
            self.fixtures.modify("update_num", self.update_num)
            self.fixtures.modify("samples_seen", self.samples_seen)
            yield
            self._run.losses.check()
            self._windows.drop_all("the run ended")
        warn_of_hooks_that_never_ran(self._never_reached())

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            pass  # the place for hooks that load one

    # ---- training, from the outside in ---------------------------------------------------------------------------

    @skippable("run")
    def _train_in_own_run(self, entry: str, epochs: int | None, steps: int | None, evaluates: bool) -> None:
        with self._in_run(entry):
            if entry == "train":  # counted here, since a checkpoint may have been loaded
                epochs = max(0, self.epochs - self.epoch_num)
            self._run.epochs_asked = epochs
            self._train(epochs, steps, self.eval_at if evaluates else NEVER)

    @skippable("train")
    def _train(self, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> None:
        with self.mode(training=True), self._collector, self._in_call(epochs, steps), self.staged("train"):
            self._run.evaluates = eval_at is not NEVER
            if eval_at.start and self.epoch_num == self.step_num == 0:
                self._evaluate()
            for epochs_after in self._epochs_to_train(epochs):
                done = self.epoch_num
                self._train_step_epoch(epochs_after)
                if self._decide().evaluate or (eval_at.epoch and self.epoch_num > done):
                    self._evaluate()
            if eval_at.end or self._decide().evaluate:
                self._evaluate()
            self._set_end(self.step_num)

    @skippable("train_step_epoch")
    def _train_step_epoch(self, epochs_after: int | None) -> None:
        self._run.epoch_end_requested = False
        with self.staged("train_step_epoch"):
            run, feed = self._run, self._feed
            run.begin_epoch(self.epoch_num + 1, is_last=epochs_after == 0)
            first_step = None if feed.is_unfinished else self.step_num
            is_complete = self._train_all_batches()
            run.losses.check()  # before the epoch counts as completed
            if is_complete:
                step_schedulers(self.lr_schedule)
                self._counts.epoch_num += 1
                self.fixtures.modify("epoch_num", self.epoch_num)  # before the post hooks of the epoch
                if epochs_after is not None:
                    self._expect_end(epochs_after, first_step)

    def _decide(self, data_ended: bool = False) -> Requests:
        """Return what the loop does of what was requested, here or in a process that this one agrees with."""
        requests = self.decide(self._run.requests(data_ended))
        self._run.take_over(requests)
        return requests

    def _train_all_batches(self) -> bool:
        """Train on one epoch's batches; return whether the epoch is complete."""
        run, feed, pauses = self._run, self._feed, False
        assert self.train_data is not None, "train() has checked it"
        feed.begin(self.train_data, self.steps_per_epoch, self.epoch_num)
        try:
            while True:
                requests = self._decide(feed.has_ended)  # the point of decision between two batches
                if requests.data_ended and not feed.batch_num:
                    raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")
                if requests.data_ended or requests.end_epoch:
                    feed.end()
                    return True
                if requests.stop or self.step_num == run.step_limit:
                    pauses = not requests.stop
                    return False
                if requests.evaluate:
                    self._evaluate()
                    continue  # its hooks may have requested something
                batch = feed.pull()
                if batch is END:
                    self.decide(DATA_ENDED)  # in place of the decision whether to skip a batch
                else:
                    self._train_batch(self._on_device(batch))
        finally:
            if not pauses:
                feed.leave()

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        with self._in_run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._modules():
                if not all(part.training for part in module.modules()):
                    module.train()  # until the run ends
            with self._run.own_batch(last_batch):
                return self._train_batch(self._on_device(batch))

    def _train_batch(self, batch: Any) -> Tensor | None:
        run, windows = self._run, self._windows
        run.batch_is_alive, run.skip_is_decided = True, False
        try:
            return self._train_step_batch(batch)
        except BaseException as error:
            if run.batch_is_alive or not isinstance(error, SkipBatch):  # not if a post hook skips the rest of the hooks
                windows.drop_touched()
            if not isinstance(error, SkipBatch):
                raise
            return None
        finally:
            if not run.skip_is_decided:
                self.decide(SKIP_BATCH)
            run.end_batch()
            windows.end_batch()
            self._collector.losses = None  # the forward pass may have been left half-way

    @skippable("train_step_batch")
    def _train_step_batch(self, batch: Any) -> Tensor | None:
        run, feed = self._run, self._feed
        given = {
            "batch": batch,
            "batch_num": run.own_batches or feed.batch_num,
            "datasource_name": feed.datasource_name,
            "update_begins": self._windows.begin,
            "update_ends": True,
            "losses": Losses(),
        }
        with self.staged("train_step_batch", given):
            began, in_hooks = perf_counter(), self._store.hook_seconds
            self._decide_to_skip()
            self._unpack(feed.data_name)
            self.fixtures["global_batch_size"] = self.fixtures["true_batch_size"]
            if isinstance(self.model, nn.Module):
                require_no_value(self._chosen.train_batch(), "train_batch")
            else:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            loss = self._count_step()
            self._step_seconds.append(perf_counter() - began - self._store.hook_seconds + in_hooks)
        return loss

    def _decide_to_skip(self) -> None:
        """Skip the batch if the point of decision says so; a hook of this process would have raised it before."""
        self._run.skip_is_decided = True
        requests = self.decide(NOTHING)
        self._run.data_has_ended = requests.data_ended
        if requests.skip_batch or requests.data_ended:
            raise SkipBatch

    @skippable("train_model_forward")
    def _train_model_forward(self) -> None:
        with self.staged("train_model_forward"):
            losses = self._collector.losses = self.fixtures["losses"]  # what the model adds; _train_batch ends it
            is_first = self._run.forward_loss is None
            if not is_first:
                losses.forget_added()
            prediction = require_prediction(self._chosen.train_model_forward(), self.model)
            self._collector.losses = None
            if is_first:
                self.fixtures.define("prediction", prediction, stage="train_step_batch")
            else:
                self.fixtures.modify("prediction", prediction)

    @skippable("train_loss_forward")
    def _train_loss_forward(self) -> None:
        with self.staged("train_loss_forward"):
            losses = self._collector.losses = self.fixtures["losses"]
            loss = require_training_loss(losses.total(self._chosen.train_loss_forward()))
            self._collector.losses = None
            if self._run.forward_loss is None:
                self.fixtures.define("loss", loss, stage="train_step_batch")
            else:
                self.fixtures.modify("loss", loss)
            self._run.forward_loss = loss

    @skippable("train_backward")
    def _train_backward(
        self, loss: Tensor, name: str, optimizer: Optimizer, again: Callable[[], Tensor] | None, retain_graph: bool
    ) -> None:
        given = {"backward_loss": loss, "optimizer": optimizer, "optimizer_name": name}
        with self.staged("train_backward", given):
            backward_loss = require_tensor(self.fixtures["backward_loss"], "backward_loss")
            window = self._windows.opened(name, optimizer)
            window.add(loss, again, is_modified=backward_loss is not loss)
            self._windows.backward(name, backward_loss, retain_graph)

    @skippable("train_optimizer_step")
    def _train_optimizer_step(self, name: str, optimizer: Optimizer) -> None:
        with self.staged("train_optimizer_step", {"optimizer": optimizer, "optimizer_name": name}):
            if needs_closure(optimizer):
                optimizer.step(self._closure_of_step(name))  # type: ignore[arg-type]  # the loss, a tensor
            else:
                optimizer.step()
            self._windows.close(name)  # which frees the gradients: the next forward pass has their memory
            self._counts.count_update(name)
            self.fixtures.modify("update_num", self.update_num)

    # ---- evaluation, from the outside in -------------------------------------------------------------------------

    @skippable("run")
    def _eval_in_run(self, entry: str, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult] | None:
        with self._in_run(entry):
            return self._eval(eval_data)

    def _evaluate(self) -> None:
        """Evaluate for the loop, which does it at most once per step."""
        run = self._run
        run.eval_requested = False
        if run.evaluated_at != self.step_num:
            self._eval(self.eval_data)
            run.evaluated_at = self.step_num  # not if it has failed

    @skippable("eval")
    def _eval(self, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult]:
        if not eval_data:
            return {}
        results: dict[str, EvalResult] = {}
        with self._evaluating(), self.staged("eval") as stage:
            for name, data in eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        self._run.keep_results(stage.kept["eval_results"], self.step_num)
        return self._run.results

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss, data_name = WeightedMean(), f"eval_data[{name!r}]"
            has_loss = True
            for batch in eval_batches(data, data_name, self.epoch_num):
                has_loss = self._eval_step_batch(self._on_device(batch), mean_loss, data_name) is not False
            self.fixtures["eval_result"] = {"loss": mean_loss.value()} if has_loss else {}
            stage.keep("eval_result")  # as hooks will have left it
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(self, batch: Any, mean_loss: WeightedMean, data_name: str) -> bool:
        """Evaluate a batch; return whether it has a loss."""
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._unpack(data_name)
            if isinstance(self.model, nn.Module):
                require_no_value(self._chosen.eval_batch(), "eval_batch")
            else:
                self.fixtures["loss"] = require_scalar_loss(require_eval_step(self.model)(self.fixtures["batch"]))
            loss = self.fixtures.get("loss")
            if loss is not None:
                mean_loss.append(require_scalar_loss(loss), weight=self.fixtures["true_batch_size"])
        return loss is not None

    @skippable("eval_model_forward")
    def _eval_model_forward(self) -> None:
        with self.staged("eval_model_forward"):
            self._collector.losses = self.fixtures["losses"]
            try:
                prediction = self._chosen.eval_model_forward()
            finally:
                self._collector.losses = None
            self.fixtures.define("prediction", require_prediction(prediction, self.model), stage="eval_step_batch")

    @skippable("eval_loss_forward")
    def _eval_loss_forward(self) -> None:
        with self.staged("eval_loss_forward"):
            losses = self._collector.losses = self.fixtures["losses"]
            try:
                loss = self._chosen.eval_loss_forward()
            finally:
                self._collector.losses = None
            self.fixtures.define("loss", require_scalar_loss(losses.total(loss)), stage="eval_step_batch")

    # ---- prediction ----------------------------------------------------------------------------------------------

    @skippable("run")
    def _predict_in_run(self, data: Iterable[Any]) -> Any:
        with self._in_run("predict"):
            return self._predict(data)

    @skippable("predict")
    def _predict(self, data: Iterable[Any]) -> Any:
        with self._evaluating(), self.staged("predict") as stage:
            batches = eval_batches(data, "data", self.epoch_num)
            parts = [self._predict_step_batch(self._on_device(batch)) for batch in batches]
            self.fixtures["predictions"] = joined([part for part in parts if part is not None])
            stage.keep("predictions")
        return stage.kept["predictions"]

    @skippable("predict_step_batch")
    def _predict_step_batch(self, batch: Any) -> Any:
        with self.staged("predict_step_batch", {"batch": batch}) as stage:
            self.fixtures["inputs"] = self._parts("data")["inputs"]
            self.fixtures["prediction"] = require_prediction(self._chosen.eval_model_forward(), self.model)
            stage.keep("prediction")  # as hooks will have left it
        return stage.kept["prediction"]

    # ---- parts of a step without a stage -------------------------------------------------------------------------

    def _parts(self, data_name: str) -> Mapping[str, Any]:
        """Return the parts of the batch as its pre hooks have left it: what they did to it is what is trained on."""
        as_usual = self._chosen.unpacks_as_usual
        parts = parts_of(self.fixtures["batch"]) if as_usual else require_parts(self._chosen.unpack_batch())
        self._run.structures[data_name].check(parts, self.step_num + 1)
        return parts

    def _unpack(self, data_name: str) -> None:
        """Define the parts of the batch, and its size."""
        parts = self._parts(data_name)
        if "inputs" in parts:
            self.fixtures["inputs"] = parts["inputs"]
        if "targets" in parts:
            self.fixtures["targets"] = parts["targets"]
        as_usual = self._chosen.unpacks_as_usual
        size = count_rows(self.fixtures["batch"]) if as_usual else self._chosen.get_true_batch_size()
        self.fixtures["true_batch_size"] = require_batch_size(size)

    def _count_step(self) -> Tensor | None:
        """Move the counts, before the post hooks of the batch; return its loss."""
        run, counts = self._run, self._counts
        if run.forward_loss is None and run.update_losses and "loss" not in self.fixtures:
            self.fixtures["loss"] = run.sum_of_updates()
            run.count(None, counts.step_num + 1)  # the sum needs no look, if its parts get one
        else:
            run.count(self.fixtures.get("loss"), counts.step_num + 1)
        self._windows.ended = self.fixtures["update_ends"]
        counts.step_num += 1
        # Not in place, for hooks may have it.
        counts.samples_seen = counts.samples_seen + self.fixtures["global_batch_size"]
        self.fixtures.modify("step_num", counts.step_num)
        self.fixtures.modify("samples_seen", counts.samples_seen)
        loss: Tensor | None = self.fixtures.get("loss")  # as the last hook has left it
        return loss

    def _on_device(self, batch: Any) -> Any:
        return batch if self.device is None else to_device(batch, self.device)

    def _modules(self) -> list[nn.Module]:
        """Return the model, what is called in its place, and the loss: the modules that have modes and parameters."""
        parts = dict.fromkeys((self.model, self.called_model, self.loss))
        return [part for part in parts if isinstance(part, nn.Module)]

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for module in self._modules() for parameter in module.parameters())

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave modes, random states and gradients as they were."""
        with self.mode(training=False), preserved_random_state(), preserved_gradients(self._parameters()):
            with self._collector:
                yield

    def _named_in_batch(self, optimizer: str | None, method: str) -> str:
        """Return the name of an optimizer, in a method that ``train_batch`` calls."""
        if "train_step_batch" not in self._store.open:
            cure = "call it in train_batch(self, ...), or train on a batch: tm.train_on_batch(batch)"
            what = f"{method}() was called, but no batch is being trained on"
            raise StageError(what, stages=self.fixtures.path, cure=cure)
        return self._optimizer_name(optimizer, method)

    def _closure_of_step(self, name: str) -> Callable[[], Tensor]:
        """Return the closure that a step calls; its first call finds the gradients there, as hooks have seen them."""
        window, run = self._windows[name], self._run
        if window.loss is run.hooked_loss and run.hooked_loss is not run.forward_loss:
            window.is_modified = True
        return once_known(window.loss, self.closure(name))

    def _loss_again(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a loss anew, under the precision of the batch, and its gradients."""
        self._windows[name].optimizer.zero_grad(set_to_none=True)
        autocast: Callable[[], AbstractContextManager[Any]] = self.fixtures.get("autocast", nullcontext)
        with torch.enable_grad(), autocast():
            loss = require_training_loss(compute())
        self._windows.backward(name, loss, retain_graph=False)
        return loss

    def _forward_again(self) -> Tensor:
        """Compute the loss of the forward pass anew, without its stages; the fixtures keep their values."""
        cell = self._store.cells["prediction"]  # not by `modify`, which a hook would have to declare
        before = cell.value
        try:
            with Losses() as losses:
                cell.value = self._chosen.train_model_forward()
                return losses.total(self._chosen.train_loss_forward())
        finally:
            cell.value = before

    # ---- how far a call goes -------------------------------------------------------------------------------------

    @contextmanager
    def _in_call(self, epochs: int | None, steps: int | None) -> Iterator[None]:
        """Know where a training call will end, from before its first hook until it ends, in whatever way."""
        self._begin_call(epochs, steps)
        try:
            yield
        finally:
            self._set_end(self.step_num)  # a run may go on after an error, and Accumulate asks for it

    def _begin_call(self, epochs: int | None, steps: int | None) -> None:
        """Note that a training call begins, and where it will end, if that is known."""
        run = self._run
        run.begin_call(self.step_num, steps)
        self.fixtures.modify("model", self.called_model)  # which may have been replaced while a run is held open
        self.fixtures.modify("start_step", self.step_num)
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if epochs is not None and length is not None:
            self._set_end(self.step_num + epochs * length - self._feed.done_of(self.train_data, self.steps_per_epoch))
        else:
            self._set_end(run.step_limit)

    def _expect_end(self, epochs_after: int, first_step: int | None) -> None:
        """Note where the call will end, as an epoch ends; ``first_step`` is None if the epoch was left before."""
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if length is not None:
            self._set_end(self.step_num + epochs_after * length)
        elif first_step is not None and not self._run.epoch_end_requested:
            self._run.expected_end = self.step_num + epochs_after * (self.step_num - first_step)

    def _set_end(self, end_step: int | None) -> None:
        self._run.end_step = end_step
        self.fixtures.modify("end_step", end_step)

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """Give one item for each epoch, or part of one: how many come after it; None if steps are counted."""
        run = self._run
        if epochs is not None:  # counted here: an epoch that is skipped does not move epoch_num
            for epochs_after in reversed(range(epochs)):
                if self._decide().stops:
                    return
                yield epochs_after
            return
        assert run.step_limit is not None, "either epochs or steps are given"
        while self.step_num < run.step_limit and not self._decide().stops:
            before, goes_on = (self.step_num, self.epoch_num), self._feed.is_unfinished
            yield None
            had_no_batch_left = goes_on and self.epoch_num > before[1]
            if self.step_num == before[0] and run.stop_at is None and not had_no_batch_left:
                raise StageError(
                    "an epoch went by without a step, so the steps asked for would never be done",
                    name="train_steps",
                    cure="does a hook skip every batch, or every epoch?",
                )

    # ---- before and after ----------------------------------------------------------------------------------------

    def _train_in_run(
        self, entry: str, epochs: int | None = None, steps: int | None = None, evaluates: bool = True
    ) -> TrainResult:
        """Train epochs or steps, in the run that is open or in a run of its own, and return what was done."""
        self._require_ready(entry, epochs)
        began, before = perf_counter(), (self.epoch_num, self.step_num, self.update_num)
        self._run.keep_results({}, None)
        with self._methods_chosen():
            self._train_in_own_run(entry, epochs, steps, evaluates)
        return TrainResult(
            stopped=self._run.stop_reason,
            stopped_by=self._run.stopped_by,
            metrics=self._run.results,
            evaluated_at=self._run.results_at,
            epochs=self.epoch_num - before[0],
            steps=self.step_num - before[1],
            updates=self.update_num - before[2],
            seconds=perf_counter() - began,
        )

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval", "predict", "train_step_batch")
        if self._run.stop_at is not None and "run" in self.fixtures.path:
            warnings.warn(f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=4)
        require_optimizer_of(self._modules(), self.optimizers.values())
        if epochs is not None:
            require_finite_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(
            self.model, bool(self.optimizers), self.train_data, passes, self.eval_data, (epochs or 0) + 1
        )

    def _prepare_run(self, entry: str | None) -> None:
        if entry not in self._checked:
            self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
        if not isinstance(self.model, nn.Module):
            warn_of_idle_hooks(self._registry.hooks, self.model)
        require_train_dir_for_hooks(self._registry.hooks, self.train_dir is not None)
        if self.train_dir is not None:
            make_train_dir(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        self._run = RunState(entry, self.step_num, self.epoch_num, self._run.call)
        if entry not in ("eval", "eval_on_batch", "predict"):  # which leave what schedules count as it is
            self._run.begin_call(self.step_num, steps=None)

    @contextmanager
    def _methods_chosen(self) -> Iterator[None]:
        """Choose the methods that each batch calls, anew for each call from outside."""
        before, self._chosen = self._chosen, self._choose()
        try:
            yield
        finally:
            self._chosen = before

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen them
            entry, held = self._run.entry, self._run.entry is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _refuse_inside(self, method: str, *stages: str) -> None:
        alive = next((stage for stage in stages if stage in self.fixtures.path), None)
        if alive is not None:
            raise StageError(
                f"{method}() cannot be called inside stage {alive!r}",
                name=alive,
                stages=self.fixtures.path,
                cure="in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)",
            )
