"""What a module keeps beside its parameters and buffers, and has changed: it is saved, for a state_dict leaves it out.

Numbers that are plain attributes, as the momentum of a norm or a counter, and buffers that are not persistent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from train_manager.checkpoints.fit import plain_name

LeftOut = dict[str, Any]
"""By the names of modules and attributes, with dots: numbers, and of buffers what tells whether they have changed."""


def left_out(module: nn.Module) -> LeftOut:
    """Return what the state of a module leaves out, as it is now.

    >>> left_out(nn.Sequential(nn.Dropout(0.1)))
    {'0.p': 0.1}
    """
    buffers = {name: (id(one), one._version) for name, one in _buffers(module)}
    return dict(_numbers(module)) | buffers


def changed(module: nn.Module, before: LeftOut, loaded: Collection[str] = ()) -> dict[str, Any]:
    """Return what has changed since ``left_out`` was called, and what was loaded; of buffers the tensors."""
    now, buffers = left_out(module), dict(_buffers(module))
    found = [name for name, value in now.items() if name in loaded or (name in before and before[name] != value)]
    return {name: buffers.get(name, now[name]) for name in found}


def put_back(module: nn.Module, saved: Mapping[str, Any]) -> None:
    """Set what ``changed`` returned, as far as it is here: numbers and buffers, and nothing else that a file names."""
    modules = {plain_name(name): one for name, one in module.named_modules()}
    numbers, buffers = dict(_numbers(module)), dict(_buffers(module))
    for name, value in saved.items():
        owner, _, attribute = name.rpartition(".")
        if name in numbers and type(value) in (int, float):
            setattr(modules[owner], attribute, value)
        elif name in buffers and isinstance(value, Tensor):
            setattr(modules[owner], attribute, value.to(buffers[name], copy=True))


def _numbers(module: nn.Module) -> Iterator[tuple[str, float]]:
    for path, one in module.named_modules():
        for name, value in vars(one).items():
            if type(value) in (int, float) and not name.startswith("_") and value == value:
                yield f"{plain_name(path)}.{name}".lstrip("."), value


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, one in module.named_modules():
        for name in one._non_persistent_buffers_set:
            buffer = one._buffers.get(name)
            if buffer is not None:
                yield f"{plain_name(path)}.{name}".lstrip("."), buffer
