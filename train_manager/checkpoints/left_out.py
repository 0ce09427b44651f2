"""Changed values of a module that its ``state_dict`` leaves out, so that a checkpoint holds them too.

These are numbers in plain attributes, such as the momentum of a norm or a counter, and buffers that are not persistent.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.model.modules import plain_name

LeftOut = dict[str, Any]
"""By dotted names of modules and attributes: a number, or the ``Mark`` of a buffer, which shows a change."""


@final
class Mark:
    """Notes a tensor as it is: two marks are equal if they are of one tensor that was not changed between them.

    >>> tensor = torch.zeros(2)
    >>> before = Mark(tensor)
    >>> before == Mark(tensor), before == Mark(tensor.add_(1)), before == Mark(torch.zeros(2))
    (True, False, False)
    """

    def __init__(self, tensor: Tensor) -> None:
        # Not the id, which the next tensor may have as soon as this one is freed.
        self._tensor = weakref.ref(tensor)
        # torch counts the changes of a tensor in `_version`, so no copy is needed to notice one.
        self._changes = -1 if tensor.is_inference() else tensor._version

    def is_of(self, tensor: Tensor) -> bool:
        """Return whether the mark is of this tensor, which may have changed since."""
        return self._tensor() is tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mark) and self._tensor() is other._tensor() and self._changes == other._changes

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[Mark], tuple[Tensor]]:
        # A copy is equal to no mark, so a copied manager takes all tensors for changed ones, and saves them.
        return Mark, (torch.empty(0),)


def left_out_values(module: nn.Module) -> LeftOut:
    """Return the values that the state of a module leaves out, as they are now.

    >>> left_out_values(nn.Sequential(nn.Dropout(0.1)))
    {'0.p': 0.1}
    """
    buffers = {name: Mark(one) for name, one in _buffers(module)}
    return dict(_numbers(module)) | buffers


def changed_values(module: nn.Module, before: LeftOut, loaded: Collection[str] = ()) -> dict[str, Any]:
    """Return the values that have changed since ``left_out_values`` was called, or were loaded; buffers as tensors."""
    now, buffers = left_out_values(module), dict(_buffers(module))
    # A value that was loaded is saved again, even if `before` already has it.
    found = [name for name, value in now.items() if name in loaded or (name in before and before[name] != value)]
    return {name: buffers.get(name, now[name]) for name in found}


def put_back(module: nn.Module, saved: Mapping[str, Any]) -> None:
    """Set the values that ``changed_values`` returned, if the module has such numbers and buffers."""
    modules = {plain_name(name): one for name, one in module.named_modules()}
    numbers, buffers = dict(_numbers(module)), dict(_buffers(module))
    for name, value in saved.items():
        owner, _, attribute = name.rpartition(".")
        # A file cannot add an attribute or replace a method: only a number that is here is set.
        if name in numbers and type(value) in (int, float):
            setattr(modules[owner], attribute, value)
        elif name in buffers and isinstance(value, Tensor):
            setattr(modules[owner], attribute, value.to(buffers[name], copy=True))


def _numbers(module: nn.Module) -> Iterator[tuple[str, float]]:
    for path, one in module.named_modules():
        for name, value in vars(one).items():
            # `value == value` is False for nan, which would always count as changed.
            if type(value) in (int, float) and not name.startswith("_") and value == value:
                yield f"{plain_name(path)}.{name}".lstrip("."), value


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, one in module.named_modules():
        # torch has no public list of buffers that are not persistent.
        for name in one._non_persistent_buffers_set:
            buffer = one._buffers.get(name)
            if buffer is not None:
                yield f"{plain_name(path)}.{name}".lstrip("."), buffer
