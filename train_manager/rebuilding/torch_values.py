"""Values of PyTorch and NumPy as trees: dtypes, devices, a few numbers, and layers without parameters of their own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from train_manager.files.json_values import ValueEncoder
from train_manager.rebuilding.record_tree import Tree
from train_manager.rebuilding.torch_names import name_in_torch
from train_manager.telling.errors import CheckpointError

MAX_NUMBERS: Final = 64
"""The most numbers of a tensor that is written as an argument, such as weights of classes; a larger one is data."""

_DTYPES: Final = {str(kind): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
# torch.device() reads many forms of text; only "cuda:0" and the like come from this library.
_DEVICE: Final = re.compile(r"[a-z]{1,20}(:\d{1,3})?")
_COMMA: Final = re.compile(r", (?=[^()]*(?:\(|$))")  # not one inside of brackets
_DEPRECATED: Final = ("size_average", "reduce")  # arguments of losses that are not kept as attributes


def number_of(value: Any) -> Any:
    """Return a number of NumPy as a plain one, which a user would write by hand too; or None."""
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else None


def tree_of_value(value: Any) -> Tree | None:
    """Return the tree of a dtype, a device or a tensor of a few numbers; None for any other value."""
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value)}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    is_small = type(value) is Tensor and value.device.type == "cpu" and value.layout == torch.strided
    if not is_small or value.requires_grad or value.dtype.is_complex or value.numel() > MAX_NUMBERS:
        return None
    known = str(value.dtype) in _DTYPES
    return {"$numbers": [ValueEncoder()(value.tolist()), str(value.dtype)]} if known else None


def arguments_of(value: Any) -> dict[str, Any] | None:
    """Return the arguments of a loss or another module of PyTorch that has no parameters, from its attributes.

    Such a module keeps each argument in an attribute of the same name. None for any other value.
    """
    if not isinstance(value, nn.Module) or name_in_torch(type(value)) is None:
        return None
    # A module with parameters or submodules has more state than its attributes of plain values show.
    if any(True for _ in value.children()) or any(True for _ in value.parameters()):
        return None
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # nn.Identity takes and ignores any
    parameters = [p for p in inspect.signature(type(value)).parameters.values() if p.kind not in rest]
    # A required argument without its attribute cannot be read back.
    if any(p.default is inspect.Parameter.empty and not hasattr(value, p.name) for p in parameters):
        return None
    names = [p.name for p in parameters if p.name not in _DEPRECATED and hasattr(value, p.name)]
    return {name: getattr(value, name) for name in names}


def layers_text(value: Any) -> str:
    """Return the layers of a Sequential in short; nothing for any other value.

    >>> layers_text(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2, bias=False)))
    'Sequential(2 x Linear(8, 8), Dropout(p=0.3), Linear(8, 2, bias=False))'
    """
    return _layer_text(value) if type(value) is nn.Sequential else ""


def _layer_text(module: nn.Module) -> str:
    if type(module) is nn.Sequential:
        runs = [(text, len([*alike])) for text, alike in groupby(map(_layer_text, module))]
        inside = [f"{count} x {text}" if count > 1 else text for text, count in runs]
    else:
        inside = [*_options_of(module)]
    return f"{type(module).__name__}({', '.join(inside)})"


def _options_of(module: nn.Module) -> Iterator[str]:
    """Yield what the ``repr`` of a module has in brackets, without defaults and the names of required arguments."""
    named = inspect.signature(type(module)).parameters
    for option in _COMMA.split(module.extra_repr()) if module.extra_repr() else ():
        name, _, value = option.partition("=")
        default = named[name].default if value and name in named else None
        if value != str(default):
            yield value if default is inspect.Parameter.empty else option


def dtype_of(name: str, at: str) -> torch.dtype:
    """Return a dtype by its name."""
    if name not in _DTYPES:
        raise CheckpointError(f"{at} is {name!r:.40}, which is not a dtype of this PyTorch", name=at)
    return _DTYPES[name]


def device_of(name: str, at: str) -> torch.device:
    """Return a device by its name."""
    try:
        if _DEVICE.fullmatch(name):
            return torch.device(name)
    except RuntimeError:
        pass  # this build of torch does not know the kind of device
    raise CheckpointError(f"{at} is {name!r:.40}, which is not a device of this PyTorch", name=at)


def tensor_of(numbers: Any, dtype: str, at: str) -> Tensor:
    """Return a tensor of a few numbers."""
    try:
        return torch.tensor(numbers, dtype=dtype_of(dtype, at))
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{at} is not a tensor of {dtype:.40}: {error!s:.100}", name=at) from error
