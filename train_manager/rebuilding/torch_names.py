"""The names of PyTorch that any file may use: optimizers, schedulers, layers, losses and activations, all harmless."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch
from torch import nn, optim
from torch.nn import functional
from torch.optim import lr_scheduler

# Functions of the module torch itself, which also has others that read files: so each is named here.
_ACTIVATIONS: Final = ("abs", "cos", "erf", "exp", "log_softmax", "relu", "sigmoid", "sin", "softmax", "square", "tanh")


@cache
def torch_names() -> dict[str, Any]:
    """Return the registered classes and functions of PyTorch, by public names, which stay when its files move.

    >>> torch_names()["torch.optim:AdamW"], torch_names()["torch.nn:CrossEntropyLoss"]
    (<class 'torch.optim.adamw.AdamW'>, <class 'torch.nn.modules.loss.CrossEntropyLoss'>)
    """
    return {
        **{f"torch.optim:{name}": kind for name, kind in _classes(optim, optim.Optimizer)},
        **{f"torch.optim.lr_scheduler:{name}": kind for name, kind in _classes(lr_scheduler, lr_scheduler.LRScheduler)},
        **{f"torch.nn:{name}": kind for name, kind in _classes(nn, nn.Module)},
        **{f"torch.nn.functional:{name}": function for name, function in _functions()},
        **{f"torch:{name}": getattr(torch, name) for name in _ACTIVATIONS},
    }


@cache
def _names() -> dict[int, str]:
    # An id cannot be taken by another object, because torch keeps its own classes and functions alive.
    return {id(thing): name for name, thing in torch_names().items()}


def name_in_torch(thing: Any) -> str | None:
    """Return the name of a class or a function of PyTorch; None if it is not registered."""
    return _names().get(id(thing))


def _classes(module: Any, base: type) -> Iterator[tuple[str, type]]:
    for name, kind in vars(module).items():
        # Only subclasses of the base: the modules also have helpers and imported names.
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base and not name.startswith("_"):
            yield name, kind


def _functions() -> Iterator[tuple[str, Any]]:
    """Yield the functions of torch.nn.functional: those that it defines in Python, and those in C."""
    for name, function in vars(functional).items():
        is_own = getattr(function, "__module__", None) == functional.__name__
        # A function in C has no module, so only its type shows that it is one.
        in_c = isinstance(function, BuiltinFunctionType)
        if not name.startswith("_") and (in_c or (is_own and isinstance(function, FunctionType))):
            yield name, function
