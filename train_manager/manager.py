"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

What decides nothing about the algorithm is elsewhere: what an argument must be in ``require.py``, how data is walked
in ``batches.py``, modes in ``modes.py``, random states in ``randomness.py``. Everything else is an extension.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager import require
from train_manager.batches import no_batch, to_device, unending, walk, walk_steps
from train_manager.core.errors import StageError
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extensions
from train_manager.errors import InputError
from train_manager.finite import FiniteLosses
from train_manager.held import WeightedMean
from train_manager.modes import mode, preserved_modes
from train_manager.randomness import preserved_random_state, seed_all
from train_manager.skip import SkipBatch, skippable

EvalResult = dict[str, float]
R = TypeVar("R")


def overridable(method: Callable[..., R]) -> Callable[..., R]:
    """Say to type checkers that an override may have other parameters: it names the fixtures that it wants."""
    return method


class TrainManager(Extensible):
    """Train and evaluate a model; use it as it is, or subclass it and override what differs.

    >>> import torch
    >>> from torch import nn
    >>> from train_manager import TrainManager
    >>> x = torch.linspace(-1, 1, 32).unsqueeze(1)
    >>> batches = [(x, 2 * x + 1)] * 20
    >>> tm = TrainManager(
    ...     model=nn.Linear(1, 1), loss=nn.functional.mse_loss, epochs=5, train_data=batches,
    ...     eval_data={"train": batches[:1]}, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=.3))
    >>> tm.train()
    >>> tm.eval()["train"]["loss"] < 1e-3
    True

    Args:
        model: what is trained.
        loss: ``loss(prediction, targets)``; or, when one of its required parameters is called ``prediction``, any
            function of fixtures. May be left out where ``loss_forward`` is overridden.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated before the first epoch and after every one. One
            that has no name is called "eval".
        epochs: how many in all; a second ``train()`` goes on to that number.
        steps_per_epoch: cuts endless data into epochs of so many batches.
        lr_schedule: a callable that makes a torch scheduler of the optimizer; stepped after each epoch.
        device: where the model and the batches go; None leaves both where they are.
        seed: for the random states of python, numpy and torch, once, as the first run opens; None touches none.
        train_dir: folder for what extensions write; None writes nothing.
        extensions: a list, or a dict of names.

    Attributes:
        epoch_num: epochs completed.
        step_num: batches trained on, those not counted that were skipped.
        update_num: optimizer steps done.
        stop_reason: why the last run was ended by ``stop``; None where it was not.

    Raises:
        InputError: an argument is of no use.
        NonFiniteLoss: a loss was nan or infinite, said at the latest at the end of the epoch.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        loss: Callable[..., Tensor] | None = None,
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
        self.device = None if device is None else torch.device(device)
        self.model = require.model(model, self.device)
        self.loss = require.loss_function(loss, self.device)
        self._named_loss = self.loss, require.loss_by_name(self.loss)
        self.optimizer = require.optimizer(optimizer, self.model, loss)
        self.lr_schedule = require.lr_schedule(lr_schedule, self.optimizer)
        self.train_data = require.train_data(train_data)
        self.eval_data = require.eval_data(eval_data)
        self.epochs = require.count(epochs, "epochs", at_least=0)
        self.steps_per_epoch = (
            None if steps_per_epoch is None else require.count(steps_per_epoch, "steps_per_epoch", at_least=1)
        )
        self.seed = None if seed is None else require.count(seed, "seed", at_least=0)
        self.train_dir = require.train_dir(train_dir)
        self.epoch_num = self.step_num = self.update_num = 0
        self.stop_reason: str | None = None
        self._stop_at: str | None = None  # "step" or "epoch", once somebody has asked for it
        self._entry: str | None = None  # the method that the run was entered by; None: the user holds it open
        self._has_run = False
        self._eval_is_due = False
        self._has_gradients = False  # of the batch that is alive
        # Where the last epoch stopped, of data that is cut into epochs.
        self._stream: Generator[Any, None, None] | None = None
        super().__init__(extensions)

    # ---- to be called ------------------------------------------------------------------------------------------

    @skippable("run")
    def train(self) -> None:
        """Train until ``epochs`` epochs are done, evaluating before the first and after each.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        if self.epoch_num >= self.epochs:
            warnings.warn(
                f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done "
                "(raise `epochs`, or call train_epochs(n))",
                stacklevel=3,
            )
        self._require_ready(self.epochs - self.epoch_num)
        with self._run("train"):
            self._train(self.epochs - self.epoch_num)

    @skippable("run")
    def train_epochs(self, n: int) -> None:
        """Train ``n`` epochs more, whatever ``epochs`` says."""
        self._require_ready(require.count(n, "n", at_least=0))
        with self._run("train_epochs"):
            self._train(n)

    def eval(self) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now.

        Returns:
            For each set its results, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan
            for a set whose batches were all skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._refuse_while("train_step_batch", "eval")
        if not self.eval_data:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        return self._eval_in_run() or {}

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves."""
        self._eval_is_due = True

    def stop(self, reason: str, at: str = "step") -> None:
        """End the run after this step, or with ``at="epoch"`` after this epoch; its hooks run as ever.

        Raises:
            StageError: no run is open.
        """
        require.one_of(at, "at", ("step", "epoch"))
        if "run" not in self.fixtures.path:
            raise StageError("stop() was called, but no run is open", stages=self.fixtures.path)
        self.stop_reason = reason
        self._stop_at = "step" if self._stop_at == "step" else at

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and their kin inside the ``with`` join it."""
        return self._run(entry=None)

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Train or eval mode, with or without gradients, for a ``with`` block; restored per submodule."""
        return mode(*self._modules(), training=training)

    # ---- to be overridden: called with the fixtures that their parameters name; they open no stages --------------

    @overridable
    def initialize_params(self) -> None:
        """Initialise the model's parameters, once, as the first run opens. Here: as its modules have done it."""

    @overridable
    def unpack_batch(self, batch: Any) -> tuple[Any, ...] | Mapping[str, Any]:
        """What is ``inputs`` and what is ``targets`` in a batch. Here: a pair is both, anything else is ``inputs``.

        Return ``(inputs, targets)``, or a dict of the two where one is missing. For other parts of a batch write
        a ``@fixture("train_step_batch")`` method of that name.
        """
        if isinstance(batch, list | tuple) and len(batch) == 2:
            return {"inputs": batch[0], "targets": batch[1]}
        return {"inputs": batch}

    @overridable
    def get_true_batch_size(self, batch: Any) -> int:
        """How many examples a batch has, the weight of its loss. Here: rows of the first tensor in it."""
        return require.rows(batch)

    @overridable
    def model_forward(self, inputs: Any) -> Any:
        """The prediction, in training and evaluation."""
        return self.model(inputs)

    @overridable
    def train_model_forward(self) -> Any:
        """The prediction in training. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def eval_model_forward(self) -> Any:
        """The prediction in evaluation. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def loss_forward(self) -> Tensor:
        """The loss, in training and evaluation. Here: ``loss``, by fixture names or as PyTorch's losses are called."""
        if self.loss is not self._named_loss[0]:
            self._named_loss = self.loss, require.loss_by_name(self.loss)
        by_name = self._named_loss[1]
        if by_name is not None:
            return by_name(self._store)  # type: ignore[no-any-return]
        loss = require.loss(self.loss)
        if "targets" not in self.fixtures:
            raise require.no_targets(self.fixtures["batch"])
        return loss(self.fixtures["prediction"], self.fixtures["targets"])

    @overridable
    def train_loss_forward(self) -> Tensor:
        """The loss in training. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    @overridable
    def eval_loss_forward(self) -> Tensor:
        """The loss in evaluation. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    # ---- the loop, from the outside in -----------------------------------------------------------------------------

    def _run(self, entry: str | None) -> AbstractContextManager[None]:
        """The run that is open; else a new one, entered by the method of that name."""
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)
        given: dict[str, Any] = {  # with its names, for `check` and `explain` read them here
            "epoch_num": self.epoch_num,
            "step_num": self.step_num,
            "update_num": self.update_num,
            "standalone_eval": entry == "eval",
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        with preserved_modes(*self._modules()), self.staged("run", given):
            self._initialize_once()
            self._load_checkpoint()
            for name in ("epoch_num", "step_num", "update_num"):  # a checkpoint has set the attributes
                self.fixtures.modify(name, getattr(self, name))
            yield
        self._report_unreached()

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            pass  # the place for hooks that load one

    @skippable("train")
    def _train(self, epochs: int) -> None:
        self._zero_grad()  # an error in an earlier step may have left gradients
        with self.mode(training=True), self.staged("train"):
            if self.epoch_num == 0:
                self._eval()
            for _ in range(epochs):  # not a count of epoch_num: an epoch that is skipped does not move it
                if self._stop_at is not None:
                    break
                done = self.epoch_num
                self._train_step_epoch()
                if self.epoch_num > done:
                    self._eval()

    @skippable("train_step_epoch")
    def _train_step_epoch(self) -> None:
        with self.staged("train_step_epoch"):
            losses = FiniteLosses(epoch=self.epoch_num + 1)
            complete = self._train_all_batches(losses)
            losses.check()
            if complete:
                self._step_lr_schedule()
                self._count("epoch_num")

    def _train_all_batches(self, losses: FiniteLosses) -> bool:
        """Train on one epoch's batches; False where the run was stopped before the last."""
        for batch, last_batch in self._train_batches():
            if self._eval_is_due:
                self._eval()
            if self._stop_at == "step":  # by a hook of that evaluation
                return False
            self._train_batch(batch, last_batch, losses)
            if self._stop_at == "step" and not last_batch:
                return False
        return True

    def _train_batch(self, batch: Any, last_batch: bool, losses: FiniteLosses) -> None:
        self._has_gradients = False
        try:
            self._train_step_batch(batch, last_batch, losses)
        except SkipBatch:
            if self._has_gradients:
                self._zero_grad()

    @skippable("train_step_batch")
    def _train_step_batch(self, batch: Any, last_batch: bool, losses: FiniteLosses) -> None:
        with self.staged("train_step_batch", {"batch": batch, "last_batch": last_batch}):
            self._define_batch_parts()
            self._train_model_forward()
            self._train_loss_forward()
            self.fixtures["backward_loss"] = require.still_tensor(self.fixtures["loss"], "loss")
            self._train_backward()
            self._train_optimizer_step()
            losses.append(self.fixtures["loss"], step=self.step_num + 1)
            self._count("step_num")

    @skippable("train_model_forward")
    def _train_model_forward(self) -> None:
        with self.staged("train_model_forward"):
            prediction = require.prediction(self.call_by_name(self.train_model_forward), self.model)
            self.fixtures.define("prediction", prediction, stage="train_step_batch")

    @skippable("train_loss_forward")
    def _train_loss_forward(self) -> None:
        with self.staged("train_loss_forward"):
            loss = require.training_loss(self.call_by_name(self.train_loss_forward))
            self.fixtures.define("loss", loss, stage="train_step_batch")

    @skippable("train_backward")
    def _train_backward(self) -> None:
        with self.staged("train_backward"):
            backward_loss = require.still_tensor(self.fixtures["backward_loss"], "backward_loss")
            self._has_gradients = True
            backward_loss.backward()

    @skippable("train_optimizer_step")
    def _train_optimizer_step(self) -> None:
        with self.staged("train_optimizer_step"):
            assert self.optimizer is not None, "train() has checked it"
            self.optimizer.step()
            self._zero_grad()
            self._count("update_num")

    @skippable("run")
    def _eval_in_run(self) -> dict[str, EvalResult] | None:
        with self._run("eval"):
            return self._eval()

    @skippable("eval")
    def _eval(self) -> dict[str, EvalResult]:
        self._eval_is_due = False
        results: dict[str, EvalResult] = {}
        if not self.eval_data:
            return results
        with self.mode(training=False), preserved_random_state(), self.staged("eval") as stage:
            for name, data in self.eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        return cast("dict[str, EvalResult]", stage.kept["eval_results"])

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss = WeightedMean()
            for batch in self._eval_batches(name, data):
                self._eval_step_batch(batch, mean_loss)
            self.fixtures["eval_result"] = {"loss": mean_loss.value()}
            stage.keep("eval_result")  # as hooks will have left it
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(self, batch: Any, mean_loss: WeightedMean) -> None:
        with self.staged("eval_step_batch", {"batch": batch}):
            self._define_batch_parts()
            self._eval_model_forward()
            self._eval_loss_forward()
            mean_loss.append(self.fixtures["loss"], weight=self.fixtures["true_batch_size"])

    @skippable("eval_model_forward")
    def _eval_model_forward(self) -> None:
        with self.staged("eval_model_forward"):
            prediction = require.prediction(self.call_by_name(self.eval_model_forward), self.model)
            self.fixtures.define("prediction", prediction, stage="eval_step_batch")

    @skippable("eval_loss_forward")
    def _eval_loss_forward(self) -> None:
        with self.staged("eval_loss_forward"):
            loss = require.scalar_loss(self.call_by_name(self.eval_loss_forward))
            self.fixtures.define("loss", loss, stage="eval_step_batch")

    # ---- parts of the loop that are no stages ------------------------------------------------------------------------

    def _prepare_run(self, entry: str | None) -> None:
        self._entry = entry
        if entry not in self._checked:
            self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
        require.train_dir_where_needed(self._registry.hooks, self.train_dir is not None)
        if self.train_dir is not None:
            require.folder(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        self.stop_reason = self._stop_at = None
        self._eval_is_due = False  # a run that failed may have left it
        if entry != "eval":
            self._zero_grad()

    def _initialize_once(self) -> None:
        if not self._has_run:
            self.call_by_name(self.initialize_params)
            self._has_run = True

    def _train_batches(self) -> Iterator[tuple[Any, bool]]:
        """One epoch's batches, each with whether it is the last."""
        assert self.train_data is not None, "train() has checked it"
        if self.steps_per_epoch is None:
            batches = walk(self.train_data, "train_data")
        else:
            if self._stream is None or getgeneratorstate(self._stream) == GEN_CLOSED:  # perhaps by an error
                self._stream = unending(self.train_data)
            batches = walk_steps(self._stream, self.steps_per_epoch)
        gave_any = False
        for batch, last_batch in batches:
            gave_any = True
            yield self._on_device(batch), last_batch
        if not gave_any:
            raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")

    def _eval_batches(self, name: str, data: Iterable[Any]) -> Iterator[Any]:
        gave_any = False
        for batch in data:
            gave_any = True
            yield self._on_device(batch)
        if not gave_any:
            raise no_batch(data, f"eval_data[{name!r}]", f"after epoch {self.epoch_num}")

    def _on_device(self, batch: Any) -> Any:
        return batch if self.device is None else to_device(batch, self.device)

    def _define_batch_parts(self) -> None:
        """Unpack the batch as the pre hooks have left it: what they did to it is what is trained on."""
        parts = require.parts(self.call_by_name(self.unpack_batch))
        if "inputs" in parts:
            self.fixtures["inputs"] = parts["inputs"]
        if "targets" in parts:
            self.fixtures["targets"] = parts["targets"]
        self.fixtures["true_batch_size"] = require.batch_size(self.call_by_name(self.get_true_batch_size))

    def _count(self, name: str) -> None:
        counted = getattr(self, name) + 1
        setattr(self, name, counted)
        self.fixtures.modify(name, counted)

    def _step_lr_schedule(self) -> None:
        if self.lr_schedule is not None:
            self.lr_schedule.step()

    def _modules(self) -> list[nn.Module]:
        """The model, and the loss where it is a module: it may have modes and parameters too."""
        return [part for part in (self.model, self.loss) if isinstance(part, nn.Module)]

    def _zero_grad(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen them
            entry, held = self._entry, self._entry is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _report_unreached(self) -> None:
        """Where not all stages could be read from the source, mistakes can only be told at the end."""
        for hook in self._never_reached():
            warnings.warn(
                f"{hook.label} ({hook.whose}) never ran: no stage {hook.stage!r} has opened ({hook.call.defined_at})",
                stacklevel=2,
            )

    def _always_there(self) -> dict[str, Any]:
        return {**super()._always_there(), "train_manager": self}

    def _require_ready(self, epochs: int) -> None:
        self._refuse_while("train", "eval")
        if self._stop_at is not None and "run" in self.fixtures.path:
            warnings.warn(f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=4)
        passes = epochs if self.steps_per_epoch is None else 1
        require.ready_to_train(self.optimizer, self.train_data, passes, self.eval_data, epochs + 1)

    def _refuse_while(self, *stages: str) -> None:
        alive = next((stage for stage in stages if stage in self.fixtures.path), None)
        if alive is not None:
            raise StageError(
                f"train() and eval() cannot be called inside stage {alive!r}",
                name=alive,
                stages=self.fixtures.path,
                cure="in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)",
            )
