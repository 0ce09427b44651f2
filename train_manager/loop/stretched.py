"""A prediction and targets in two shapes, as (20,) and (20, 1), that some losses of torch would stretch to (20, 20).

The loss then compares each prediction with all targets: the training runs, with a warning of torch at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, Final, final

from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from train_manager.core.store import Store
from train_manager.telling.errors import InputError

STRETCHING: Final = (
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.poisson_nll_loss,
    F.gaussian_nll_loss,
    F.kl_div,
    F.hinge_embedding_loss,
)
"""The losses of torch that broadcast; the others refuse two shapes."""


def refusing_stretched(loss_forward: Callable[[], Any], store: Store) -> Callable[[], Any]:
    """Return a call of a method that computes the loss; a loss of torch in it refuses shapes that it would stretch."""
    cells = store.cells

    def checked() -> Any:
        try:
            suspects = may_stretch(cells["prediction"].value, cells["targets"].value)
        except (KeyError, AttributeError):  # no targets, or an own fixture of them that no code has read yet
            suspects = False
        if not suspects:
            return loss_forward()
        with NoStretching():
            return loss_forward()

    return checked


def may_stretch(prediction: Any, targets: Any) -> bool:
    """Return whether two values are tensors with as many numbers in two shapes.

    This runs in each step. A loss of the user may bring the two into one shape itself.
    """
    if type(prediction) is not Tensor or type(targets) is not Tensor or prediction.numel() != targets.numel():
        return False
    return not (prediction.is_nested or targets.is_nested or prediction.shape == targets.shape)


def stretched(one: Tensor, other: Tensor) -> str:
    """Return the shapes of two tensors that have as many numbers, and that are stretched to more; empty for others.

    >>> import torch
    >>> stretched(torch.zeros(8, 1), torch.zeros(8)), stretched(torch.zeros(1, 8), torch.zeros(8))
    ('(8, 1) against (8,)', '')
    """
    sizes = zip_longest(one.shape[::-1], other.shape[::-1], fillvalue=1)
    if one.squeeze().shape == other.squeeze().shape and math.prod(map(max, sizes)) > one.numel():
        return f"{tuple(one.shape)} against {tuple(other.shape)}"
    return ""


@final
class NoStretching(TorchFunctionMode):
    """A ``with`` block in which the losses of torch refuse shapes that they would stretch.

    Raises:
        InputError: a loss is given two such shapes.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in STRETCHING:
            given = {**dict(zip(("input", "target"), args, strict=False)), **kwargs}
            shapes = stretched(given["input"], given["target"])
            if shapes:
                name = func.__name__
                what = f"{name} would compare each prediction with the targets of all examples: {shapes}"
                call = f"{name}(prediction, targets.view_as(prediction))"
                cure = f"give both one shape: loss=lambda prediction, targets: {call}"
                raise InputError(what, name="loss", asked_by=name, cure=cure)
        return func(*args, **kwargs)
