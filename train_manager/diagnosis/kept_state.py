"""The state of a model that a run may change, kept and put back before the next run."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from train_manager.data.random_state import random_state, set_random_state

OTHERS: Final = ("torch", "train_manager", "logging", "threading")
"""Packages of objects that a model may refer to, but whose state is not its own, such as an optimizer."""


@final
class KeptState:
    """Parameters, buffers, attributes and hooks of a model's modules, modes among them, and all random states.

    >>> norm = nn.BatchNorm1d(1)
    >>> kept = KeptState(norm)
    >>> _ = norm(torch.tensor([[1.], [3.]]))
    >>> kept.put_back()
    >>> norm.running_mean
    tensor([0.])

    Args:
        model: the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._seen: set[int] = set()  # ids of values that are kept already, as values may refer to each other
        self._put_back: list[Callable[[], object]] = []
        for module in model.modules():
            for held in (vars(module), *module.parameters(recurse=False), *module.buffers(recurse=False)):
                self._keep(held)
        self._random = random_state()

    def put_back(self) -> None:
        """Put all values back in place, so that other objects that refer to them have them back too."""
        with torch.no_grad():
            for one in self._put_back:
                one()
        set_random_state(self._random)

    def _keep(self, held: Any) -> None:
        """Keep the contents of a value, and of all values inside it."""
        # Submodules come by themselves in model.modules(); functions have no state that could be put back.
        if id(held) in self._seen or isinstance(held, nn.Module | type) or callable(held):
            return
        self._seen.add(id(held))
        taken = next((taken for kind, taken in KINDS.items() if isinstance(held, kind)), None)
        if taken is not None:
            self._put_back += taken(held)
        elif hasattr(held, "__dict__") and type(held).__module__.partition(".")[0] not in OTHERS:
            self._keep(vars(held))
        if isinstance(held, dict | list | tuple | set | deque):
            for inner in held.values() if isinstance(held, dict) else held:
                self._keep(inner)


Taken = list[Callable[[], object]]


def _of_tensor(held: Tensor) -> Taken:
    is_without_values = is_lazy(held) or held.layout != torch.strided
    return [] if is_without_values else [partial(_fill_tensor, held, held.detach().clone())]


def _fill_tensor(held: Tensor, before: Tensor) -> None:
    # A buffer that grows, as a cache, cannot get its old values in place.
    if held.shape != before.shape:
        held.data = before.clone()
    elif not torch.equal(held, before):  # written only if changed: an expanded one cannot be
        held.data.copy_(before)


def _fill(held: Any, before: Any) -> None:
    if _ids(held) != _ids(before):  # written only if changed: a frozen dict, as a configuration, cannot be
        held.clear()
        (held.update if isinstance(held, dict | set) else held.extend)(before)


def _ids(held: Any) -> list[int]:
    return [*map(id, held), *map(id, held.values() if isinstance(held, dict) else ())]


# Of each type a function that takes the contents of a value, and returns functions that put them back.
KINDS: Final[dict[type, Callable[[Any], Taken]]] = {
    Tensor: _of_tensor,
    dict: lambda held: [partial(_fill, held, dict(held))],
    list: lambda held: [partial(_fill, held, list(held))],
    set: lambda held: [partial(_fill, held, set(held))],
    deque: lambda held: [partial(_fill, held, list(held))],
    np.ndarray: lambda held: [partial(np.copyto, held, held.copy())] if held.flags.writeable else [],
    torch.Generator: lambda held: [partial(held.set_state, held.get_state())],
    random.Random: lambda held: [partial(held.setstate, held.getstate())],
    np.random.Generator: lambda held: [partial(setattr, held.bit_generator, "state", held.bit_generator.state)],
    np.random.RandomState: lambda held: [partial(held.set_state, held.get_state())],
}
