"""Region: the model, the loss, the backward pass and the step of a batch, one after the other, without their stages.

    train_step_batch                                  train_step_batch
    ├─ train_model_forward      if anything looks     │  model
    ├─ train_loss_forward       into one of these     │  loss            if nothing does
    ├─ train_backward           four                  │  backward
    └─ train_optimizer_step                           │  step

A training is the same in both, to the bit; a step without the stages takes less time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.hooks import Hook
from train_manager.core.plan import Plan
from train_manager.core.providers import Provider
from train_manager.core.stage import note_place
from train_manager.core.store import Store
from train_manager.loop.counts import Counts
from train_manager.loop.losses import Collector
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import require_prediction, require_training_loss
from train_manager.loop.step import Backward, Step
from train_manager.loop.windows import Windows, free_gradients, needs_closure, warn_without_gradients

INNER: Final = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")
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

    Attributes:
        version: that of the plans for which it was made.
        opened_for: what needs the stages; empty if nothing does.
        is_watched: a batch has shown that the model and the loss write no fixture and open no stage.

    Args:
        opened_for: what needs the stages.
        model: named in errors.
        optimizer: the only one.
        store: the state of the manager.
        windows: that of the manager, as are the others.
        collector: collects what the model adds to the loss.
        counts: how much was trained.
    """

    __slots__ = (
        *("_called", "_collector", "_counts", "_loss", "_model", "_model_call", "_optimizer", "_store", "_windows"),
        *("is_watched", "opened_for", "version"),
    )

    def __init__(
        self,
        opened_for: str,
        model: Any,
        optimizer: Any,
        store: Store,
        windows: Windows,
        collector: Collector,
        counts: Counts,
    ) -> None:
        self.version = store.version
        self.opened_for = opened_for
        self.is_watched = False
        self._model, self._optimizer = model, optimizer
        self._loss: Callable[..., Tensor] | None = None
        self._store, self._windows, self._collector, self._counts = store, windows, collector, counts

    def calls(self, model: Any, loss: Callable[..., Tensor] | None) -> None:
        """Call the model with the inputs, and a loss with the prediction and the targets, without asking by name.

        Args:
            model: the model, or its compiled or wrapped form.
            loss: takes both by position; None if either must be called by names.
        """
        self._called, self._loss = model, loss
        self._model_call = ModelCall(self._model)

    def train(self, parts: Mapping[str, Any], chosen: Forwards, loss_again: Callable[[], Tensor], step: Step) -> None:
        """Train on the batch that is open.

        Args:
            parts: the inputs and the targets, as far as the batch has them.
            chosen: returns the prediction and the loss.
            loss_again: computes the loss anew; kept with a window that stays open.
            step: what is known of the batch.
        """
        store, collector, optimizer = self._store, self._collector, self._optimizer
        batch, cells, part = store.innermost, store.cells, INNER[0]
        losses = collector.losses = step.losses if cells["losses"].owner is None else cells["losses"].value
        try:
            loss_of = self._loss if len(parts) == 2 else None
            called = None if loss_of is None else self._model_call
            prediction = chosen.train_model_forward() if called is None else called(self._called, parts["inputs"])
            require_prediction(prediction, self._model)
            store.define("prediction", prediction, batch, _HERE)
            part = INNER[1]
            returned = chosen.train_loss_forward() if loss_of is None else loss_of(prediction, parts["targets"])
            collector.losses = None  # else the second run of the model, by activation checkpoints, would add its own
            loss = step.forward_loss = require_training_loss(losses.total(returned))
            store.define("loss", loss, batch, _HERE)
            part = INNER[2]
            free_gradients(optimizer)  # the data's iterator or a hook of torch may have left some since the last step
            try:
                loss.backward()
                if not cells["update_ends"].value:
                    self._windows.leave_open(SOLE, optimizer)
                    step.backwards[SOLE] = Backward(loss, loss_again)
                    return
                if self._windows.gathered is not None:
                    self._windows.gathered(optimizer)
                warn_without_gradients(optimizer, SOLE)
                part = INNER[3]
                optimizer.step()
            except BaseException:
                free_gradients(optimizer)  # half a backward pass must be dropped too
                raise
            free_gradients(optimizer)  # the next forward pass has their memory
            self._counts.count_update(SOLE)
            cells["update_num"].value = self._counts.update_num
        except Exception as error:
            note_place(error, (*store.path, part))
            raise
        finally:
            collector.losses = None


_HERE = Region.train.__code__, 0
"""The line that defines the fixtures of a batch here, as errors name it."""


# ---- whether the stages stay closed ----------------------------------------------------------------------------------


def opened_for(plan_of: Callable[[str], Plan], model: object, optimizer: object, own_methods: Iterable[str]) -> str:
    """Return what needs the inner stages, as ``explain`` tells it; an empty text if nothing does.

    Args:
        plan_of: returns the plan of a stage.
        model: what is trained.
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
    return f"{type(optimizer).__name__}, which needs a closure" if needs_closure(optimizer) else ""


def _lookers(plan: Plan) -> Iterator[str]:
    """Yield the classes that have a hook, a provider or a schedule at a stage."""
    lookers: tuple[Hook | Provider, ...] = (*plan.around, *plan.pre, *plan.post, *plan.providers.values())
    yield from (looker.label.partition(".")[0] for looker in lookers)
    if not lookers and (plan.run_pre is not None or plan.run_post is not None):
        yield "a schedule"


# ---- what the first batch shows --------------------------------------------------------------------------------------


class Watch:
    """Notes whether functions that are called in the first batch write a fixture, or open a stage."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.has_seen = False

    def of(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return the function, watched."""

        def watched() -> Any:
            store = self._store
            opened = store.open = _NotedDict(store.open)
            values, lazy = store.computed, store.lazy
            try:
                return function()
            finally:
                store.open = dict(opened)
                written = [name for name, value in store.computed.items() if values.get(name, lazy) is not value]
                self.has_seen |= opened.is_written or not lazy.issuperset(written)

        return watched


class _NotedDict(dict[str, Any]):
    """A dict that knows whether it was written to."""

    is_written = False

    def __setitem__(self, name: str, value: Any) -> None:
        self.is_written = True
        super().__setitem__(name, value)
