"""A copy of a state that the training no longer changes, for a writer that comes later."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_manager.checkpoints.tensors import memory_of
from train_manager.files.json_values import DEEPEST, MAPPINGS


def copy_state(state: Any) -> Any:
    """Return a copy of a state that later steps do not change: tensors on the CPU, new containers and arrays.

    >>> weight = torch.zeros(2)
    >>> state = copy_state({"model": {"weight": weight, "tied": weight}, "step": 3})
    >>> weight += 1
    >>> state["model"]["weight"], state["model"]["tied"] is state["model"]["weight"]
    (tensor([0., 0.]), True)

    Tensors that are the same memory are copied once. Numbers and texts are not copied, because they cannot change; nor
    is an object of another type, which the writer refuses by its name.
    """
    return _Copy().of(state)


class _Copy:
    def __init__(self) -> None:
        # The copies by the memory of their originals: tied weights stay tied, and cost one copy.
        self._tensors: dict[tuple[Any, ...], Tensor] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            return value.copy()
        if depth > DEEPEST:  # a list may hold itself; the writer refuses it with its path
            return value
        if type(value) in (list, tuple):
            return type(value)(self.of(item, depth + 1) for item in value)
        if type(value) in MAPPINGS:
            return type(value)({key: self.of(item, depth + 1) for key, item in value.items()})
        return value

    def _tensor(self, tensor: Tensor) -> Tensor:
        # A sparse or meta tensor has no strided memory to copy; the writer refuses it with its path.
        if tensor.layout != torch.strided or tensor.is_meta:
            return tensor
        memory = memory_of(tensor)
        if not memory or memory not in self._tensors:
            self._tensors[memory] = tensor.detach().to("cpu", copy=True)
        return self._tensors[memory]
