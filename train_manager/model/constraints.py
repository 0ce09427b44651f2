"""Constraints on weights, for the extension ``Constrain``: each makes of a weight the nearest one that is allowed.

A *row* of a weight is what comes in to one unit: ``weight[i]`` of a linear or convolutional layer, of an embedding the
vector of one word. A weight that is a vector is one row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def max_norm(weight: Tensor, limit: float = 2.0) -> Tensor:
    """No row is longer than ``limit``; the others stay as they are.

    >>> max_norm(torch.tensor([[3., 4.], [.6, .8]]), limit=1).tolist()[1] == torch.tensor([.6, .8]).tolist()
    True
    """
    return weight * (limit / row_norms(weight).clamp(min=limit))  # 1 where it is short enough


def unit_norm(weight: Tensor) -> Tensor:
    """Every row has the length 1; one of zeros stays as it is.

    >>> unit_norm(torch.tensor([[0., 5.], [0., 0.]]))
    tensor([[0., 1.],
            [0., 0.]])
    """
    return weight / row_norms(weight).clamp(min=torch.finfo(weight.dtype).tiny)


def non_negative(weight: Tensor) -> Tensor:
    """What is below zero becomes zero.

    >>> non_negative(torch.tensor([-1., 2.]))
    tensor([0., 2.])
    """
    return weight.clamp(min=0)


def row_norms(weight: Tensor) -> Tensor:
    """The length of each row, in a shape that the weight can be divided by.

    >>> row_norms(torch.tensor([[3., 4.], [0., 2.]]))
    tensor([[5.],
            [2.]])
    """
    if weight.dim() < 2:
        return torch.linalg.vector_norm(weight)  # type: ignore[no-any-return]
    return torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)  # type: ignore[no-any-return]
