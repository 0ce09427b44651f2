"""Tensors that are kept with the graph that they were computed by, step after step, and who keeps them."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, Final, final

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

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
        self._first_seen: Any = WeakIdKeyDictionary()  # the step after which a tensor was
        self._step = 0

    def pre_train(self) -> None:
        self._note()

    def post_train_step_batch(self) -> None:
        self._step += 1
        if self._step <= STEPS:
            self._note()
        if self._step == STEPS:
            steps = {step for step in self._first_seen.values() if 0 < step < STEPS}
            grows = len(steps) == STEPS - 1
            self.held = [one for one, step in self._first_seen.items() if step in steps] if grows else []

    def _note(self) -> None:
        for one in tensors_with_graphs():
            self._first_seen.setdefault(one, self._step)


def tensors_with_graphs() -> list[Tensor]:
    """Return the tensors that Python knows and that an operation has made whose inputs need gradients."""
    found = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]  # isinstance() asks the object too
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
    """Return whether what an object refers to, or a function encloses, leads to what is wanted; not through others."""
    ahead, seen = deque([value]), {*apart}
    while ahead and len(seen) < LOOKED_AT + len(apart):
        one = ahead.popleft()
        if id(one) in wanted:
            return True
        if id(one) not in seen and not isinstance(one, (ModuleType, type, Tensor, nn.Module)):
            seen.add(id(one))
            ahead += (one.__closure__ or ()) if isinstance(one, FunctionType) else gc.get_referents(one)
    return False
