"""Constraints on weights, for the extension ``Constrain``: each returns the nearest weight that satisfies it.

A *row* of a weight is ``weight[i]``: the incoming weights of one unit of a linear or convolutional layer, or the
vector of one word of an embedding. A weight that is a vector is one row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def max_norm(weight: Tensor, limit: float = 2.0) -> Tensor:
    """Shorten rows that are longer than ``limit``.

    >>> max_norm(torch.tensor([[3., 4.], [.6, .8]]), limit=1).tolist()[1] == torch.tensor([.6, .8]).tolist()
    True
    """
    return weight * (limit / row_norms(weight).clamp(min=limit))  # short rows: limit / limit, which is exactly 1


def unit_norm(weight: Tensor) -> Tensor:
    """Scale every row to length 1; a row of zeros stays.

    >>> unit_norm(torch.tensor([[0., 5.], [0., 0.]]))
    tensor([[0., 1.],
            [0., 0.]])
    """
    # The smallest number of the type in place of 0: a row of zeros stays, and does not become nan.
    return weight / row_norms(weight).clamp(min=torch.finfo(weight.dtype).tiny)


def non_negative(weight: Tensor) -> Tensor:
    """Set negative weights to zero.

    >>> non_negative(torch.tensor([-1., 2.]))
    tensor([0., 2.])
    """
    return weight.clamp(min=0)


def row_norms(weight: Tensor) -> Tensor:
    """Return the length of each row, in a shape that divides the weight.

    >>> row_norms(torch.tensor([[3., 4.], [0., 2.]]))
    tensor([[5.],
            [2.]])
    """
    if weight.dim() < 2:
        return torch.linalg.vector_norm(weight)  # type: ignore[no-any-return]
    return torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)  # type: ignore[no-any-return]
