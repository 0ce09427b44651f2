"""Tensors that are kept with their graph, step after step, and the attribute that keeps them."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, Final, final

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from train_manager.core.extension import Extension

STEPS: Final = 3  # after this many, the graphs of earlier steps must be freed
LOOKED_AT: Final = 20_000  # objects that are searched below one attribute


@final
class GraphWatch(Extension):
    """Notes the tensors with a graph that are alive after each of the first steps.

    Attributes:
        held: the tensors of steps 1 and 2 that are alive after step 3, if each of the two has left some; else an empty
            list. None before step 3.
    """

    priority = 1_000_000  # after the hooks of other extensions

    def __init__(self) -> None:
        self.held: list[Tensor] | None = None
        # Of each tensor the step after which it was first seen; weak, so that this watch keeps no graph alive.
        self._first_seen: Any = WeakIdKeyDictionary()
        self._step = 0

    def pre_train(self) -> None:
        self._note()

    def post_train_step_batch(self) -> None:
        self._step += 1
        if self._step <= STEPS:
            self._note()
        if self._step == STEPS:
            # One held graph, such as that of the last loss, is usual: only a graph of every step fills the memory.
            steps = {step for step in self._first_seen.values() if 0 < step < STEPS}
            grows = len(steps) == STEPS - 1
            self.held = [one for one, step in self._first_seen.items() if step in steps] if grows else []

    def _note(self) -> None:
        for one in tensors_with_graphs():
            self._first_seen.setdefault(one, self._step)


def tensors_with_graphs() -> list[Tensor]:
    """Return all live tensors that have a graph: those that an operation has computed from inputs with gradients."""
    # isinstance() would ask an object for its __class__, which makes lazy proxies load what they stand for.
    found = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]
    return [one for one in found if one.grad_fn is not None]


def holder_of(tensors: Iterable[Tensor], train_manager: Any) -> str:
    """Return which attribute of an extension, a module or the manager leads to one of the tensors; empty if none."""
    owners: dict[str, Any] = {f"extension {name!r}": one for name, one in train_manager.extensions.items()}
    if isinstance(train_manager.model, nn.Module):
        modules = train_manager.model.named_modules()
        owners |= {f"module {name!r}" if name else "the model": module for name, module in modules}
    owners[type(train_manager).__name__] = train_manager
    wanted, apart = {id(one) for one in tensors}, {id(one) for one in owners.values()}
    for label, owner in owners.items():
        for name, value in {**vars(type(owner)), **vars(owner)}.items():
            if _leads_to(value, wanted, apart):
                return f"{label}, attribute {name!r}"
    return ""


def _leads_to(value: object, wanted: set[int], apart: set[int]) -> bool:
    """Return whether a chain of references from an object leads to a wanted one, without passing another owner."""
    ahead, seen = deque([value]), {*apart}
    while ahead and len(seen) < LOOKED_AT + len(apart):
        one = ahead.popleft()
        if id(one) in wanted:
            return True
        # Modules of Python and classes refer to nearly everything; tensors and layers have owners of their own.
        if id(one) not in seen and not isinstance(one, (ModuleType, type, Tensor, nn.Module)):
            seen.add(id(one))
            ahead += (one.__closure__ or ()) if isinstance(one, FunctionType) else gc.get_referents(one)
    return False
