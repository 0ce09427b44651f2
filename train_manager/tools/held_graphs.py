"""Tensors that are kept with the graph that they were computed by, step after step, and who keeps them."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any, Final, final

from torch import Tensor, nn

from train_manager.core.extension import Extension

STEPS: Final = 3  # after which what a step has left must be gone
LOOKED_AT: Final = 20_000  # objects below one attribute


@final
class GraphWatch(Extension):
    """Notes which tensors with a graph each of the first steps has left, and which of them the third one still finds.

    Attributes:
        held: those of the steps before the third that are alive after it, if each of these has left some; None before.
    """

    priority = 1_000_000  # after the hooks of others

    def __init__(self) -> None:
        self.held: list[Tensor] | None = None
        self._known: dict[int, weakref.ref[Tensor]] = {}  # by id, which a tensor may have from one that is gone
        self._left: list[list[weakref.ref[Tensor]]] = []

    def pre_train(self) -> None:
        self._new()

    def post_train_step_batch(self) -> None:
        if len(self._left) == STEPS:
            return
        self._left.append(self._new())
        if len(self._left) == STEPS:
            alive = [[one for one in (ref() for ref in refs) if one is not None] for refs in self._left[:-1]]
            self.held = [one for ones in alive for one in ones] if all(alive) else []

    def _new(self) -> list[weakref.ref[Tensor]]:
        """Return the tensors that were not there before."""
        found = tensors_with_graphs()
        new = [one for one in found if id(one) not in self._known or self._known[id(one)]() is not one]
        refs = {id(one): weakref.ref(one) for one in new}
        self._known |= refs
        return list(refs.values())


def tensors_with_graphs() -> list[Tensor]:
    """Return the tensors that Python knows and that an operation has made whose inputs need gradients."""
    kinds = {Tensor}
    while more := {kind for known in kinds for kind in type.__subclasses__(known)} - kinds:
        kinds |= more
    found = [one for one in gc.get_objects() if type(one) in kinds]  # isinstance() would ask each of a million objects
    return [one for one in found if one.grad_fn is not None]


def holder_of(tensors: Iterable[Tensor], train_manager: Any) -> str:
    """Return which attribute leads to one of the tensors: of an extension, a module or the manager; or which global."""
    wanted = {id(one) for one in tensors}
    others = {id(one) for one in (train_manager, *train_manager.extensions.values())}
    return next((name for name, value in _holders(train_manager) if _leads_to(value, wanted, others)), "")


def _holders(train_manager: Any) -> Iterator[tuple[str, object]]:
    owners: dict[str, Any] = {f"extension {name!r}": one for name, one in train_manager.extensions.items()}
    if isinstance(train_manager.model, nn.Module):
        modules = train_manager.model.named_modules()
        owners |= {f"module {name!r}" if name else "the model": module for name, module in modules}
    owners[type(train_manager).__name__] = train_manager
    for label, owner in owners.items():
        yield from ((f"{label}, attribute {name!r}", value) for name, value in vars(owner).items())
        yield from ((f"{label}, {type(owner).__name__}.{name}", value) for name, value in vars(type(owner)).items())
    for label, owner in owners.items():
        functions = [getattr(one, "__func__", one) for one in (*vars(owner).values(), *vars(type(owner)).values())]
        for function in (one for one in functions if isinstance(one, FunctionType)):
            named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
            lists = {name: one for name, one in named.items() if isinstance(one, (list, dict, deque))}
            yield from ((f"{label}, {name!r} of {function.__module__}", one) for name, one in lists.items())


def _leads_to(value: object, wanted: set[int], others: set[int]) -> bool:
    ahead, seen = deque([value]), {*others}
    while ahead and len(seen) < LOOKED_AT + len(others):
        one = ahead.popleft()
        if id(one) in wanted:
            return True
        if id(one) not in seen and not isinstance(one, (ModuleType, type, Tensor, nn.Module)):
            seen.add(id(one))
            ahead += [*(one.__closure__ or ())] if isinstance(one, FunctionType) else gc.get_referents(one)
            ahead += [one.cell_contents] if isinstance(one, CellType) else []
    return False
