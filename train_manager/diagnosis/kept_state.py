"""What a run of a model may change beside its outputs, kept and put back before the next one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from train_manager.data.randomness import random_state, set_random_state

PutBack = Callable[[], None]

REGISTERED: Final = ("_parameters", "_buffers", "_modules")
"""Dicts of a module; which objects they hold is kept, and what their tensors hold."""


OTHERS: Final = ("torch", "train_manager", "logging", "threading")
"""Packages whose objects a model may hold, but whose state is not its own, as that of an optimizer."""


@final
class KeptState:
    """Parameters, buffers and attributes of a model's modules, modes among them, and all random states.

    >>> norm = nn.BatchNorm1d(1)
    >>> kept = KeptState(norm)
    >>> _ = norm(torch.tensor([[1.], [3.]]))
    >>> kept.put_back()
    >>> norm.running_mean
    tensor([0.])

    Args:
        model: the model.

    Attributes:
        random: the random states.
    """

    def __init__(self, model: nn.Module) -> None:
        self._seen: set[int] = set()
        self._put_back = [one for module in model.modules() for one in self._of_module(module)]
        self.random = random_state()

    def put_back(self) -> None:
        """Put all back in place, so that every other holder of it has it back too."""
        for one in self._put_back:
            one()
        set_random_state(self.random)

    def _of_module(self, module: nn.Module) -> Iterator[PutBack]:
        self._seen.add(id(module))
        attributes = vars(module)
        yield _dict_back(attributes)
        for name, value in list(attributes.items()):
            if name in REGISTERED:
                if isinstance(value, dict):  # a scripted module shows other mappings, and nothing can be put into them
                    yield _dict_back(value)
                for tensor in value.values():
                    yield from self._of(tensor)
            elif not _are_hooks(name):
                yield from self._of(value)

    def _of(self, value: Any) -> Iterator[PutBack]:
        """Yield what puts the contents of a value back, and of what it holds; the innermost last."""
        if id(value) in self._seen or isinstance(value, nn.Module | type) or callable(value):
            return
        self._seen.add(id(value))
        of_kind = next((kept for kind, kept in KINDS.items() if isinstance(value, kind)), None)
        if of_kind is not None and not _is_without_values(value):
            yield of_kind(value)
        elif hasattr(value, "__dict__"):
            if type(value).__module__.partition(".")[0] in OTHERS:
                return
            yield _dict_back(vars(value))
        for inner in _held_by(value):
            yield from self._of(inner)


@contextmanager
def own_hooks(model: nn.Module) -> Iterator[None]:
    """Take away the hooks that a ``with`` block registers on the modules, and put back those that it removes.

    A model that registers hooks in its first call notes that it has done so. As the note is put back, the next call
    would register them once more.
    """
    held = [value for module in model.modules() for name, value in vars(module).items() if _are_hooks(name)]
    back = [_dict_back(hooks) for hooks in held if isinstance(hooks, dict)]
    try:
        yield
    finally:
        for one in back:
            one()


def _are_hooks(name: str) -> bool:
    return name.endswith("_hooks") or "_hooks_" in name


def _is_without_values(value: Any) -> bool:
    """Return whether it is a tensor that a lazy module has not made yet, or a sparse one."""
    return isinstance(value, Tensor) and (is_lazy(value) or value.layout != torch.strided)


def _held_by(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | deque):
        return list(value)
    return list(getattr(value, "__dict__", {}).values()) if not isinstance(value, Tensor) else []


def _dict_back(held: dict[Any, Any]) -> PutBack:
    before = dict(held)

    def put_back() -> None:
        if len(held) != len(before) or any(held.get(key, before) is not value for key, value in before.items()):
            held.clear()
            held.update(before)

    return put_back


def _list_back(held: list[Any]) -> PutBack:
    before = list(held)

    def put_back() -> None:
        held[:] = before

    return put_back


def _collection_back(held: Any) -> PutBack:
    before = list(held)

    def put_back() -> None:
        held.clear()
        (held.update if isinstance(held, set) else held.extend)(before)

    return put_back


def _tensor_back(held: Tensor) -> PutBack:
    before = held.detach().clone()

    def put_back() -> None:
        with torch.no_grad():
            if held.shape != before.shape:
                held.data = before.clone()
            elif not torch.equal(held, before):
                held.data.copy_(before)

    return put_back


def _array_back(held: np.ndarray[Any, Any]) -> PutBack:
    before = held.copy()

    def put_back() -> None:
        if held.flags.writeable:
            held[...] = before

    return put_back


def _torch_generator_back(held: torch.Generator) -> PutBack:
    before = held.get_state()

    def put_back() -> None:
        held.set_state(before)

    return put_back


def _python_generator_back(held: random.Random) -> PutBack:
    before = held.getstate()
    return lambda: held.setstate(before)


def _numpy_generator_back(held: np.random.Generator) -> PutBack:
    before = held.bit_generator.state

    def put_back() -> None:
        held.bit_generator.state = before

    return put_back


def _old_numpy_generator_back(held: np.random.RandomState) -> PutBack:
    before = held.get_state()
    return lambda: held.set_state(before)


KINDS: Final[dict[type, Callable[[Any], PutBack]]] = {
    Tensor: _tensor_back,
    dict: _dict_back,
    list: _list_back,
    set: _collection_back,
    deque: _collection_back,
    np.ndarray: _array_back,
    torch.Generator: _torch_generator_back,
    random.Random: _python_generator_back,
    np.random.Generator: _numpy_generator_back,
    np.random.RandomState: _old_numpy_generator_back,
}
