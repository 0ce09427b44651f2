"""The clipping of gradients as plain arithmetic, which torch can compile together with the step behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Limits(NamedTuple):
    """The limits of a clipping; None if there is no such limit."""

    max_norm: float | None
    value: float | None
    norm_type: float

    @property
    def clipping(self) -> Clipping:
        """What of them is the same in each step."""
        return Clipping(self.norm_type, self.max_norm is not None, self.value is not None)

    @property
    def values(self) -> tuple[float, float]:
        """The limits as numbers."""
        return float(self.max_norm or 0), float(self.value or 0)


class Clipping(NamedTuple):
    """What of a clipping is the same in each step; its limits may change, and are in a tensor."""

    norm_type: float
    has_norm: bool  # the gradients have a largest norm together
    has_value: bool  # each number has a largest absolute value


class Clipped(NamedTuple):
    """Gradients after a clipping."""

    gradients: list[Tensor | None]
    norm: Tensor  # from before


def clip(clipping: Clipping, limits: Tensor, gradients: Sequence[Tensor | None]) -> Clipped:
    """Clip gradients as ``clip_grad_norm_`` and ``clip_grad_value_`` of torch do.

    >>> clip(Clipping(2.0, True, False), torch.tensor([1.0, 0.0]), [torch.tensor([3.0, 4.0]), None])
    Clipped(gradients=[tensor([0.6000, 0.8000]), None], norm=tensor(5.))

    Args:
        clipping: how they are clipped.
        limits: the largest norm, and the largest value.
        gradients: of some parameters; None for a parameter that has none, and at least one that is not None.
    """
    order = clipping.norm_type
    norms = [torch.linalg.vector_norm(one, order) for one in gradients if one is not None]
    norm = torch.linalg.vector_norm(torch.stack([one.to(norms[0].dtype) for one in norms]), order)
    most, value = limits.unbind()
    factor = torch.clamp(most / (norm + 1e-6), max=1.0) if clipping.has_norm else None
    return Clipped([None if one is None else _cut(one, factor, value, clipping) for one in gradients], norm)


def _cut(gradient: Tensor, factor: Tensor | None, value: Tensor, clipping: Clipping) -> Tensor:
    if factor is not None:
        gradient = gradient * factor.to(gradient.dtype)
    if clipping.has_value:
        most = value.to(gradient.dtype)
        gradient = torch.minimum(torch.maximum(gradient, -most), most)
    return gradient
