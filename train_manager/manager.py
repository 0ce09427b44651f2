"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

The methods that a subclass overrides are in ``loop/overridable.py``; what one run asks and counts is in
``loop/run_state.py``, where its batches come from in ``loop/feed.py``. Everything else is an extension.
"""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.errors import InputError, StageError
from train_manager.core.extension import Extensions, named
from train_manager.data.batch import FromSource, parts_of, to_device
from train_manager.data.iteration import no_batch, reset
from train_manager.loop.arguments import (
    TrainsItself,
    bind_loss,
    make_train_dir,
    require_eval_data,
    require_eval_step,
    require_finite_epochs,
    require_loss,
    require_lr_schedule,
    require_model,
    require_optimizer,
    require_optimizer_of,
    require_ready_to_train,
    require_train_data,
    require_train_dir,
    require_train_dir_for_hooks,
    warn_of_hooks_that_never_ran,
    warn_of_idle_hooks,
)
from train_manager.loop.feed import Feed, epoch_length, eval_batches
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.modes import mode, preserved_modes
from train_manager.loop.objectives import Objective
from train_manager.loop.outputs import (
    count_rows,
    require_batch_size,
    require_parts,
    require_prediction,
    require_scalar_loss,
    require_tensor,
    require_training_loss,
)
from train_manager.loop.overridable import OverridableMethods
from train_manager.loop.randomness import preserved_random_state, seed_all
from train_manager.loop.results import EvalResult, TrainResult
from train_manager.loop.run_state import Counts, RunState
from train_manager.loop.skip import SkipBatch, skippable
from train_manager.metrics.averages import WeightedMean
from train_manager.schedules.rules import Progress
from train_manager.validation import require_count, require_one_of


def _counted(name: str) -> Any:
    """Make an attribute that is kept in ``_counts``."""
    return property(attrgetter(f"_counts.{name}"), lambda manager, value: setattr(manager._counts, name, value))


class TrainManager(OverridableMethods):
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

    epoch_num: int = _counted("epoch_num")
    step_num: int = _counted("step_num")
    update_num: int = _counted("update_num")
    samples_seen: Any = _counted("samples_seen")

    def __init__(
        self,
        *,
        model: nn.Module | TrainsItself,
        loss: Callable[..., Tensor] | Objective | None = None,
        optimizer: Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        train_data: Iterable[Any] | None = None,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        lr_schedule: Callable[[Optimizer], Any] | None = None,
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
        self.epochs = require_count(epochs, "epochs", at_least=0)
        self.steps_per_epoch = (
            None if steps_per_epoch is None else require_count(steps_per_epoch, "steps_per_epoch", at_least=1)
        )
        self.seed = None if seed is None else require_count(seed, "seed", at_least=0)
        self.train_dir = require_train_dir(train_dir)
        self._has_run = False
        self._run = RunState(None, step_num=0, epoch_num=0, call=0)  # of the present or last run
        self._counts = Counts()
        self._feed = Feed()
        self._collector = Collector()
        self._step_seconds: deque[float] = deque(maxlen=1001)
        self._registry.add(named(extensions))
        if self.objective is not None:
            self.add_extension(self.objective, "objective")

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts, feeds and collects for itself."""
        state = super().__getstate__()
        parts = {name: copy.copy(state[name]) for name in ("_run", "_counts", "_feed")}
        return {**state, **parts, "_collector": Collector(), "_chosen": None}

    # ---- to be called --------------------------------------------------------------------------------------------

    def train(self) -> TrainResult:
        """Train until ``epochs`` epochs are done, evaluating before the first and after each.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        if self.epoch_num >= self.epochs:
            warnings.warn(
                f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done "
                "(raise `epochs`, or call train_epochs(n))",
                stacklevel=2,
            )
        return self._train_in_run("train", epochs=max(0, self.epochs - self.epoch_num))

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
        require_ready_to_train(self.model, self.optimizer, [batch], 1, {}, 0)
        with self._methods_chosen():
            loss = self._train_on_batch_in_run(batch, last_batch)
        return None if loss is None else loss.detach()

    def eval(self) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now.

        Returns:
            The results of each set, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan if all batches
            of the set were skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._refuse_inside("eval", "train_step_batch", "eval")
        if not self.eval_data:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        with self._methods_chosen():
            return self._eval_in_run("eval", self.eval_data) or {}

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

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and the others join it inside the ``with``."""
        return self._in_run(entry=None)

    # ---- to be called by hooks -----------------------------------------------------------------------------------

    def stop(self, reason: str, at: str = "step") -> None:
        """End the run after this step, or with ``at="epoch"`` after this epoch; all hooks run as in any other end.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        path = self.fixtures.path
        if "run" not in path:
            raise StageError("stop() was called, but no run is open", stages=path)
        asker = self._store.running
        self._run.stop(reason, at, f"{asker.label} at {' > '.join(path)}" if asker is not None else None)

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins."""
        self._run.epoch_end_requested = True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves."""
        self._run.eval_requested = True

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Set train or eval mode, with or without gradients, for a ``with`` block; restored per submodule."""
        return mode(*self._modules(), training=training)

    # ---- to be read ----------------------------------------------------------------------------------------------

    @property
    def start_step(self) -> int:
        return self._run.start_step

    @property
    def end_step(self) -> int | None:
        return self._run.end_step

    @property
    def stop_reason(self) -> str | None:
        return self._run.stop_reason

    @property
    def datasource_name(self) -> str:
        return self._feed.datasource_name

    @property
    def progress(self) -> Progress:
        """How far the present or last training call has come."""
        return self._run.progress(self.step_num)

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: with fractions and decimals it takes a while

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    # ---- a run ---------------------------------------------------------------------------------------------------

    def _in_run(self, entry: str | None) -> AbstractContextManager[None]:
        """Join the run that is open; else open one, entered by the method of that name."""
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)
        given: dict[str, Any] = {  # with its names, for `check` and `explain` read them here
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
        with preserved_modes(*self._modules()), self.staged("run", given):
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
        warn_of_hooks_that_never_ran(self._never_reached())

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            pass  # the place for hooks that load one

    # ---- training, from the outside in ---------------------------------------------------------------------------

    @skippable("run")
    def _train_in_own_run(self, entry: str, epochs: int | None, steps: int | None, evaluates: bool) -> None:
        with self._in_run(entry):
            self._train(epochs, steps, evaluates)

    @skippable("train")
    def _train(self, epochs: int | None, steps: int | None, evaluates: bool) -> None:
        self._zero_grad()  # an error in an earlier step may have left gradients
        with self.mode(training=True), self._collector, self.staged("train"):
            self._begin_call(epochs, steps)
            if evaluates and self.epoch_num == 0 and not self._feed.is_unfinished:
                self._eval(self.eval_data)
            for epochs_after in self._epochs_to_train(epochs):
                done = self.epoch_num
                self._train_step_epoch(epochs_after)
                if evaluates and self.epoch_num > done:
                    self._eval(self.eval_data)
            self._set_end(self.step_num)

    @skippable("train_step_epoch")
    def _train_step_epoch(self, epochs_after: int | None) -> None:
        with self.staged("train_step_epoch"):
            self._run.begin_epoch(self.epoch_num + 1)
            first_step = None if self._feed.is_unfinished else self.step_num
            is_complete = self._train_all_batches(is_last_epoch=epochs_after == 0)
            self._run.losses.check()  # before the epoch counts as completed
            if is_complete:
                if self.lr_schedule is not None:
                    self.lr_schedule.step()
                self._counts.epoch_num += 1
                self.fixtures.modify("epoch_num", self.epoch_num)  # before the post hooks of the epoch
                if epochs_after is not None:
                    self._set_end_after(epochs_after, first_step)

    def _train_all_batches(self, is_last_epoch: bool) -> bool:
        """Train on one epoch's batches; return whether the epoch is complete."""
        run, feed = self._run, self._feed
        assert self.train_data is not None, "train() has checked it"
        pauses, is_empty = False, not feed.is_within(self.train_data)
        try:
            for batch, last_batch in feed.batches(self.train_data, self.steps_per_epoch, self.epoch_num):
                is_empty = False
                if run.eval_requested:  # between two batches: nothing of the last one is alive any more
                    self._eval(self.eval_data)
                if run.stop_at == "step":  # by a hook of that evaluation
                    return False
                if last_batch and (is_last_epoch or run.stop_at == "epoch"):
                    self._set_end(self.step_num + 1)  # before the batch, whose hooks may ask whether it is the last
                if type(batch) is FromSource:
                    batch = feed.take(batch)
                self._train_batch(self._on_device(batch), last_batch)
                if run.epoch_end_requested:
                    reset(self.train_data)
                    return True
                if not last_batch and (run.stop_at == "step" or self.step_num == run.step_limit):
                    pauses = run.stop_at is None
                    return False
        finally:
            if not pauses:
                feed.leave()
        if is_empty:
            raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")
        return True

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        with self._in_run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._modules():
                if not module.training:
                    module.train()  # until the run ends
            return self._train_batch(self._on_device(batch), last_batch)

    def _train_batch(self, batch: Any, last_batch: bool) -> Tensor | None:
        run = self._run
        if run.has_gradients:  # of a batch that has failed, in a run that is held open
            self._zero_grad()
        run.batch_is_alive, run.has_gradients = True, False
        try:
            return self._train_step_batch(batch, last_batch)
        except SkipBatch:
            if run.has_gradients:
                self._zero_grad()
                run.has_gradients = False
            return None
        finally:
            run.batch_is_alive = False
            self._collector.losses = None  # the forward pass may have been left half-way

    @skippable("train_step_batch")
    def _train_step_batch(self, batch: Any, last_batch: bool) -> Tensor:
        with self.staged("train_step_batch", {"batch": batch, "last_batch": last_batch, "losses": Losses()}):
            began, in_hooks = perf_counter(), self._store.hook_seconds
            self._unpack(self._feed.data_name)
            if isinstance(self.model, nn.Module):
                self._train_model_forward()
                self._train_loss_forward()
                self.fixtures["backward_loss"] = require_tensor(self.fixtures["loss"], "loss")  # as its hooks left it
                self._train_backward()
                self._train_optimizer_step()
            else:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            loss: Tensor = self.fixtures["loss"]  # as the last hook has left it
            self._count_step(loss)
            self._step_seconds.append(perf_counter() - began - self._store.hook_seconds + in_hooks)
        return loss

    @skippable("train_model_forward")
    def _train_model_forward(self) -> None:
        with self.staged("train_model_forward"):
            self._collector.losses = self.fixtures["losses"]  # what the model adds; _train_batch ends it on an error
            prediction = require_prediction(self._chosen.train_model_forward(), self.model)
            self._collector.losses = None
            self.fixtures.define("prediction", prediction, stage="train_step_batch")

    @skippable("train_loss_forward")
    def _train_loss_forward(self) -> None:
        with self.staged("train_loss_forward"):
            losses = self._collector.losses = self.fixtures["losses"]
            loss = self._chosen.train_loss_forward()
            self._collector.losses = None
            self.fixtures.define("loss", require_training_loss(losses.total(loss)), stage="train_step_batch")

    @skippable("train_backward")
    def _train_backward(self) -> None:
        with self.staged("train_backward"):
            backward_loss = require_tensor(self.fixtures["backward_loss"], "backward_loss")
            self._run.has_gradients = True
            backward_loss.backward()

    @skippable("train_optimizer_step")
    def _train_optimizer_step(self) -> None:
        with self.staged("train_optimizer_step"):
            assert self.optimizer is not None, "train() has checked it"
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)  # after the step: the next forward pass has their memory
            self._counts.update_num += 1
            self.fixtures.modify("update_num", self._counts.update_num)

    # ---- evaluation, from the outside in -------------------------------------------------------------------------

    @skippable("run")
    def _eval_in_run(self, entry: str, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult] | None:
        with self._in_run(entry):
            return self._eval(eval_data)

    @skippable("eval")
    def _eval(self, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult]:
        self._run.eval_requested = False
        if not eval_data:
            return {}
        results: dict[str, EvalResult] = {}
        with self.mode(training=False), preserved_random_state(), self._collector, self.staged("eval") as stage:
            for name, data in eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        self._run.results = cast("dict[str, EvalResult]", stage.kept["eval_results"])
        return self._run.results

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss, data_name = WeightedMean(), f"eval_data[{name!r}]"
            for batch in eval_batches(data, data_name, self.epoch_num):
                self._eval_step_batch(self._on_device(batch), mean_loss, data_name)
            self.fixtures["eval_result"] = {"loss": mean_loss.value()}
            stage.keep("eval_result")  # as hooks will have left it
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(self, batch: Any, mean_loss: WeightedMean, data_name: str) -> None:
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._unpack(data_name)
            if isinstance(self.model, nn.Module):
                self._eval_model_forward()
                self._eval_loss_forward()
            else:
                self.fixtures["loss"] = require_scalar_loss(require_eval_step(self.model)(self.fixtures["batch"]))
            mean_loss.append(self.fixtures["loss"], weight=self.fixtures["true_batch_size"])

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

    # ---- parts of a step without a stage -------------------------------------------------------------------------

    def _unpack(self, data_name: str) -> None:
        """Define the parts of the batch as its pre hooks have left it: what they did to it is what is trained on."""
        batch, as_usual = self.fixtures["batch"], self._chosen.unpacks_as_usual
        parts = parts_of(batch) if as_usual else require_parts(self._chosen.unpack_batch())
        self._run.structures[data_name].check(parts, self.step_num + 1)
        if "inputs" in parts:
            self.fixtures["inputs"] = parts["inputs"]
        if "targets" in parts:
            self.fixtures["targets"] = parts["targets"]
        size = count_rows(batch) if as_usual else self._chosen.get_true_batch_size()  # which may name the parts
        self.fixtures["true_batch_size"] = require_batch_size(size)

    def _count_step(self, loss: Tensor) -> None:
        """Move the counts, before the post hooks of the batch."""
        counts = self._counts
        self._run.count(loss, counts.step_num + 1)
        counts.step_num += 1
        counts.samples_seen = counts.samples_seen + self.fixtures["true_batch_size"]  # not in place: hooks may have it
        self.fixtures.modify("step_num", counts.step_num)
        self.fixtures.modify("samples_seen", counts.samples_seen)

    def _on_device(self, batch: Any) -> Any:
        return batch if self.device is None else to_device(batch, self.device)

    def _zero_grad(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)

    def _modules(self) -> list[nn.Module]:
        """Return the model, and the loss if it is a module: it may have modes and parameters too."""
        return [part for part in (self.model, self.loss) if isinstance(part, nn.Module)]

    # ---- how far a call goes -------------------------------------------------------------------------------------

    def _begin_call(self, epochs: int | None, steps: int | None) -> None:
        """Note that a training call begins, and where it will end, if that is known."""
        self._run.begin_call(self.step_num, steps)
        self.fixtures.modify("start_step", self.step_num)
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if epochs is not None and length is not None and not self._feed.is_unfinished:
            self._set_end(self.step_num + epochs * length)
        else:
            self._set_end(self._run.step_limit)

    def _set_end_after(self, epochs_after: int, first_step: int | None) -> None:
        """Note where the call will end, as an epoch ends; ``first_step`` is None if the epoch was left before."""
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if length is None and first_step is not None and not self._run.epoch_end_requested:
            length = self.step_num - first_step  # the coming epochs will be as long
        self._set_end(None if length is None else self.step_num + epochs_after * length)

    def _set_end(self, end_step: int | None) -> None:
        self._run.end_step = end_step
        self.fixtures.modify("end_step", end_step)

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """Give one item for each epoch, or part of one: how many come after it; None if steps are counted."""
        run = self._run
        if epochs is not None:  # counted here: an epoch that is skipped does not move epoch_num
            for epochs_after in reversed(range(epochs)):
                if run.stop_at is None:
                    yield epochs_after
            return
        assert run.step_limit is not None, "either epochs or steps are given"
        while run.stop_at is None and self.step_num < run.step_limit:
            before = self.step_num
            yield None
            if self.step_num == before and run.stop_at is None:
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
        self._run.results = {}
        with self._methods_chosen():
            self._train_in_own_run(entry, epochs, steps, evaluates)
        return TrainResult(
            stopped=self._run.stop_reason,
            stopped_by=self._run.stopped_by,
            metrics=self._run.results,
            epochs=self.epoch_num - before[0],
            steps=self.step_num - before[1],
            updates=self.update_num - before[2],
            seconds=perf_counter() - began,
        )

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval")
        if self._run.stop_at is not None and "run" in self.fixtures.path:
            warnings.warn(f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=4)
        require_optimizer_of(self._modules(), self.optimizer)
        if epochs is not None:
            require_finite_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(self.model, self.optimizer, self.train_data, passes, self.eval_data, (epochs or 0) + 1)

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
        if entry not in ("eval", "eval_on_batch"):  # which leave gradients, and what schedules count, as they are
            self._run.begin_call(self.step_num, steps=None)
            self._zero_grad()

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
