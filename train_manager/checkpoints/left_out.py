"""Changed values that states leave out: numbers in plain attributes, and buffers that are not persistent.

Of a module, such as the momentum of a norm or a counter, a checkpoint holds them too. Of a manager and of an extension
without a state a checkpoint does not: a warning tells of them, as a run that resumes begins them anew.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.core.extension import Extension
from train_manager.model.modules import plain_name
from train_manager.telling.source_locations import users_level

LeftOut = dict[str, Any]
"""By dotted names of modules and attributes: a number, or the ``Mark`` of a buffer, which shows a change."""

Numbers = dict[tuple[str, str], float]
"""Numbers by the label of their object and the name of the attribute."""


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


def numbers_of_all(train_manager: Any) -> Numbers:
    """Return the numbers in plain attributes of a manager, and of its extensions that have no state of their own."""
    holders: dict[str, Any] = {type(train_manager).__name__: train_manager}
    holders |= {f"extension {name!r}": one for name, one in train_manager.extensions.items() if _has_no_state(one)}
    return {(label, name): value for label, one in holders.items() for name, value in _numbers_in(one)}


def warn_of_forgotten(before: Numbers, train_manager: Any) -> None:
    """Warn of numbers that have changed since the training began, once of each.

    Args:
        before: the result of ``numbers_of_all`` at the beginning; numbers in a warning are removed from it.
        train_manager: the manager that is being saved.
    """
    now = numbers_of_all(train_manager)
    changed = [key for key, value in before.items() if now.get(key, value) != value]
    # The next checkpoint of this training must not repeat the warning.
    for key in changed:
        del before[key]
    if changed:
        listed = ", ".join(f"{name} of {label}" for label, name in changed)
        what = f"no checkpoint holds {listed}, which has changed since the training began"
        cure = "return it in state_dict(), and set it in load_state_dict()"
        warnings.warn(f"{what}: a training that resumes begins it anew ({cure})", stacklevel=users_level())


def is_of_this_library(extension: Extension) -> bool:
    """Return whether the class of an extension is of this library, whose private attributes need no checkpoint."""
    return type(extension).__module__.startswith("train_manager.")


def _has_no_state(extension: Extension) -> bool:
    # Extensions of this library without a state_dict count nothing that a resume needs.
    return type(extension).state_dict is Extension.state_dict and not is_of_this_library(extension)


def _numbers(module: nn.Module) -> Iterator[tuple[str, float]]:
    for path, one in module.named_modules():
        for name, value in _numbers_in(one):
            yield f"{plain_name(path)}.{name}".lstrip("."), value


def _numbers_in(holder: object) -> Iterator[tuple[str, float]]:
    for name, value in vars(holder).items():
        # type() and not isinstance(): a bool is a flag, not a count. `value == value` is False for nan, which would
        # always count as changed.
        if type(value) in (int, float) and not name.startswith("_") and value == value:
            yield name, value


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, one in module.named_modules():
        # torch has no public list of buffers that are not persistent.
        for name in one._non_persistent_buffers_set:
            buffer = one._buffers.get(name)
            if buffer is not None:
                yield f"{plain_name(path)}.{name}".lstrip("."), buffer
