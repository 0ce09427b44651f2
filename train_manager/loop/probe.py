"""The prediction for another batch, beside the training: without stages, hooks, losses that count or counters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType, FunctionType
from typing import Any, Final, Protocol

from train_manager.core.beside import beside_the_hooks, is_defined_in
from train_manager.core.scope import Cell, Scope
from train_manager.core.store import Store
from train_manager.data.batch import parts_of
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import count_rows, require_batch_size, require_parts

METHODS: Final = ("unpack_batch", "get_true_batch_size", "model_forward", "train_model_forward", "eval_model_forward")
"""The methods that are called, each as it may be overridden."""

OF_A_PASS: Final = frozenset({"inputs", "targets", "true_batch_size", "global_batch_size", "prediction", "loss"})
"""The fixtures that are not alive before a batch is unpacked."""


SIZES: Final = {
    "train_step_batch": ("true_batch_size", "global_batch_size"),
    "eval_step_batch": ("true_batch_size",),
}


class Forwards(Protocol):
    """The methods of a manager, ready to be called with the live fixtures."""

    @property
    def unpacks_as_usual(self) -> bool: ...
    @property
    def unpack_batch(self) -> Callable[[], Any]: ...
    @property
    def get_true_batch_size(self) -> Callable[[], Any]: ...
    @property
    def train_model_forward(self) -> Callable[[], Any]: ...
    @property
    def eval_model_forward(self) -> Callable[[], Any]: ...


def probed(owner: type, kind: str, store: Store, chosen: Forwards, batch: Any) -> Any:
    """Return the prediction for a batch in place of the one that is open.

    Args:
        owner: the class of the manager.
        kind: "train" or "eval".
        store: the state of the manager.
        chosen: its methods.
        batch: on the device of the model.
    """
    scope, own = store.open[f"{kind}_step_batch"], _codes(owner)

    def anew(cell: Cell) -> bool:
        return cell.name in OF_A_PASS or is_defined_in(cell, own)

    forward = chosen.train_model_forward if kind == "train" else chosen.eval_model_forward
    with beside_the_hooks(store, scope, {"batch": batch, "losses": Losses()}, anew), Losses():
        autocast = store.value("autocast") if store.has("autocast") else nullcontext
        unpack(store, scope, chosen, batch)
        with autocast():
            return forward()


def unpack(store: Store, scope: Scope, chosen: Forwards, batch: Any) -> None:
    """Define the parts of the batch and its size in its stage, as the loop does."""
    here, as_usual = (unpack.__code__, 0), chosen.unpacks_as_usual
    for name, part in (parts_of(batch) if as_usual else require_parts(chosen.unpack_batch())).items():
        store.define(name, part, scope, here)
    size = require_batch_size(count_rows(batch) if as_usual else chosen.get_true_batch_size())
    for name in SIZES[scope.name]:
        store.define(name, size, scope, here)


def _codes(owner: type) -> frozenset[CodeType]:
    """Return the code of the methods, in all classes: what they have defined, they define anew."""
    found = (vars(kind).get(name) for kind in owner.__mro__ for name in METHODS)
    return frozenset(method.__code__ for method in found if isinstance(method, FunctionType))
