"""Region: the model, the loss, the backward pass and the step of a batch, one after the other, without their stages.

    train_step_batch                                  train_step_batch
    ├─ train_model_forward      if anything looks     │  model
    ├─ train_loss_forward       into one of these     │  loss            if nothing does
    ├─ train_backward           four                  │  backward
    └─ train_optimizer_step                           │  step

A training is the same in both, to the bit; a step without the stages takes less time. A region does the same as
``inner_stages.py``, so a change there is made here too; ``tests/test_region_against_stages.py`` compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.hooks import Hook
from train_manager.core.plan import Plan
from train_manager.core.providers import Provider
from train_manager.core.stage import note_place
from train_manager.core.store import Store
from train_manager.data.batch import Unpacked
from train_manager.loop.counts import Counts
from train_manager.loop.losses import Collector
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import require_prediction, require_training_loss
from train_manager.loop.step import Backward, Step
from train_manager.loop.windows import Windows, requires_closure, warn_without_gradients
from train_manager.telling.errors import StageError

MODEL: Final = "train_model_forward"
LOSS: Final = "train_loss_forward"
BACKWARD: Final = "train_backward"
STEP: Final = "train_optimizer_step"
INNER: Final = (MODEL, LOSS, BACKWARD, STEP)
"""The stages that stay closed."""

SOLE: Final = "optimizer"
"""The name of an optimizer that is the only one."""


class Forwards(Protocol):
    """The two methods of a manager that a region calls, ready to be called with the live fixtures."""

    @property
    def train_model_forward(self) -> Callable[[], Any]: ...
    @property
    def train_loss_forward(self) -> Callable[[], Any]: ...


@final
class Region:
    """Trains on a batch without its inner stages; made for one setup and one set of extensions, and dies with either.

    Args:
        reason_to_open: why the inner stages must open, such as the name of an extension; empty if they need not.
        model: named in errors.
        optimizer: the only optimizer.
        store: the state of the manager.
        windows: the windows of the manager.
        collector: collects the terms that the model adds to the loss.
        counts: how much was trained.
        methods: the functions behind the methods that a region stands for.
        collects: an own ``train_batch``, ``update`` or the like may add losses beside the forward pass, or
            ``keeps_parts``.
        keeps_parts: a hook or provider asks for the fixture ``loss_parts``; then the inner stages are open.
    """

    __slots__ = (  # no __dict__: several of these attributes are read in each step
        *("_called", "_collector", "_counts", "_loss", "_model", "_model_call", "_optimizer", "_store", "_windows"),
        *("collects", "is_watched", "keeps_parts", "methods", "reason_to_open", "version"),
    )

    def __init__(
        self,
        reason_to_open: str,
        model: Any,
        optimizer: Any,
        store: Store,
        windows: Windows,
        collector: Collector,
        counts: Counts,
        methods: tuple[Any, ...],
        collects: bool = False,
        keeps_parts: bool = False,
    ) -> None:
        # The store counts a new version as hooks come or go: a region of an older version is replaced by a new one.
        self.version = store.version
        self.reason_to_open = reason_to_open
        self.collects, self.keeps_parts = collects, keeps_parts
        # Turns True once a batch has shown that the model and the loss write no fixture and open no stage: until then
        # batches open their inner stages, with a Watch around the model and the loss.
        self.is_watched = False
        self._model, self._optimizer = model, optimizer
        self._loss: Callable[..., Tensor] | None = None  # None: the loss is called by fixture names
        self._model_call = ModelCall(model)
        self.methods = methods
        self._store, self._windows, self._collector, self._counts = store, windows, collector, counts

    def call_directly(self, model: Any, loss: Callable[..., Tensor] | None) -> None:
        """Use the model and the loss from now on without their methods: called by position, not by fixture names.

        Args:
            model: the model, or its compiled or wrapped form.
            loss: takes prediction and targets by position; None if the model or the loss must be called by names.
        """
        self._called, self._loss = model, loss

    def forward(self, unpacked: Unpacked, chosen: Forwards, step: Step) -> Tensor:
        """Define the prediction and the loss of the batch that is open, and return the loss.

        Args:
            unpacked: the inputs and the targets, as far as the batch has them.
            chosen: the methods that return the prediction and the loss.
            step: the state of the batch.
        """
        # Here and below: the cell of a fixture has an owner once a hook or a method has asked for the fixture. It may
        # have modified it, so the cell counts. Without an owner, the value that the loop has defined is used directly.
        store, collector = self._store, self._collector
        batch, cells = store.innermost, store.cells
        assert batch is not None, "a batch is open"
        losses = collector.losses = step.losses if cells["losses"].owner is None else cells["losses"].value
        batch.inner_stage = MODEL  # so that errors name the stage, although it is not opened
        try:
            loss_of = self._loss if len(unpacked) == 2 else None
            if loss_of is None:
                prediction = chosen.train_model_forward()
            else:
                inputs = unpacked["inputs"] if cells["inputs"].owner is None else cells["inputs"].value
                prediction = self._model_call(self._called, inputs)
            store.define_waiting("prediction", require_prediction(prediction, self._model), batch, _HERE)
            batch.inner_stage = LOSS
            if loss_of is None:
                returned = chosen.train_loss_forward()
            else:
                targets = unpacked["targets"] if cells["targets"].owner is None else cells["targets"].value
                returned = loss_of(prediction, targets)
            loss = require_training_loss(losses.total(returned))
            store.define("loss", loss, batch, _HERE)  # not seldom: most hooks of a batch ask for it
        except Exception as error:
            note_place(error, store.path)
            raise
        finally:  # before the backward pass: activation checkpoints run the model again, which would add its losses
            collector.losses = batch.inner_stage = None
        step.forward_loss = step.hooked_loss = loss
        return loss

    def update(self, loss: Tensor, loss_again: Callable[[], Tensor], step: Step) -> None:
        """Run the backward pass of a loss, and the step of the optimizer if its window ends with the batch.

        Args:
            loss: the loss of the batch.
            loss_again: computes this loss anew.
            step: the state of the batch.
        """
        store, optimizer, windows = self._store, self._optimizer, self._windows
        batch, cells = store.innermost, store.cells
        assert batch is not None, "a batch is open"
        is_last = cells["update_ends"].value
        batch.inner_stage = BACKWARD
        try:
            # Noted before the pass runs: if it fails half-way, its gradients are dropped with the batch.
            step.backwards[SOLE] = Backward(loss, loss_again)
            windows.backward(SOLE, optimizer, loss, False, is_modified=False, is_last=is_last)
            batch.inner_stage = None
            if is_last:
                warn_without_gradients(optimizer, SOLE)
                batch.inner_stage = STEP
                optimizer.step()
                windows.close(SOLE)  # frees the gradients now, so that the next forward pass can use their memory
                del step.backwards[SOLE]
                self._counts.count_update(SOLE)
                cells["update_num"].value = self._counts.update_num
        except Exception as error:
            if batch.inner_stage is not None:
                note_place(error, store.path)
            raise
        finally:
            batch.inner_stage = None


_HERE = Region.forward.__code__, 0
"""The line that defines the fixtures of a batch here, as errors name it."""


def changed_inside_error(path: tuple[str, ...]) -> StageError:
    """Return the error for a model or a loss that changes the setup or the extensions in the middle of a batch."""
    what = "the model or the loss has replaced a part of the training, or has added or removed an extension"
    return StageError(
        what, stages=path, cure="do so in a hook, such as pre_train_step_batch, or between two training calls"
    )


def reason_to_open(plan_of: Callable[[str], Plan], model: object, optimizer: object, own_methods: Iterable[str]) -> str:
    """Return why the inner stages must open, in the words of ``explain``; an empty text if they need not.

    Args:
        plan_of: returns the plan of a stage.
        model: the model that is trained.
        optimizer: the optimizer, or several by name.
        own_methods: the names of the methods of the class or the object that may write fixtures or open stages.
    """
    extensions = [label for stage in INNER for label in _lookers(plan_of(stage))]
    if extensions:
        return ", ".join(dict.fromkeys(extensions))
    own = next(iter(own_methods), None)
    if own is not None:
        return f"an own {own}"
    if not isinstance(model, nn.Module):
        return "a model that is not a module"
    if not isinstance(optimizer, Optimizer):
        return "several optimizers"
    return f"{type(optimizer).__name__}, which needs a closure" if requires_closure(type(optimizer).step) else ""


def _lookers(plan: Plan) -> Iterator[str]:
    """Yield the classes that have a hook, a provider or a schedule at a stage."""
    lookers: tuple[Hook | Provider, ...] = (*plan.around, *plan.pre, *plan.post, *plan.providers.values())
    yield from (looker.label.partition(".")[0] for looker in lookers)  # a label is "Class.method"
    # A schedule may belong to a hook of another stage, and only count the openings of this one.
    if not lookers and (plan.run_pre is not None or plan.run_post is not None):
        yield "a schedule"


class Watch:
    """Note whether the model or the loss writes a fixture, opens a stage, or reads the fixture ``stage``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.has_seen = False

    def of(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return the function, watched."""

        def watch_call() -> Any:
            store = self._store
            # Three traps: the dict of open stages notes each opening; the values before are compared with those after;
            # the fixture `stage` notes that it is read, as it would be another one with the inner stages closed.
            opened = store.open = _NotedDict(store.open)
            values, lazy = store.computed, store.lazy
            stage = store.cells["stage"]
            find, stage.compute = stage.compute, self._note_use_of_stage(stage.compute)
            try:
                return function()
            finally:
                store.open, stage.compute = dict(opened), find
                # A lazy fixture that was computed meanwhile is not a write: it was only read.
                written = [name for name, value in store.computed.items() if values.get(name, lazy) is not value]
                self.has_seen |= opened.is_written or not lazy.issuperset(written)

        return watch_call

    def _note_use_of_stage(self, find: Callable[[], Any]) -> Callable[[], Any]:
        def find_and_note() -> Any:
            self.has_seen = True
            return find()

        return find_and_note


class _NotedDict(dict[str, Any]):
    """A dict that knows whether it was written to."""

    is_written = False

    def __setitem__(self, name: str, value: Any) -> None:
        self.is_written = True
        super().__setitem__(name, value)
