"""The norms of layers, made of those of their parameters, without a wait for the device."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import torch
from torch import Tensor

NONE: Final = -1.0  # in place of the norm of a tensor that is not there; nan is the norm of one with a nan in it
IS_SPARSE: Final = attrgetter("is_sparse")
DEVICE: Final = attrgetter("device")


@torch.no_grad()
def norms_of(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the norm of each tensor; below 0 for None.

    >>> norms_of([torch.tensor([3., 4.]), None])
    tensor([ 5., -1.])
    """
    there = [tensor for tensor in tensors if tensor is not None]
    if any(map(IS_SPARSE, there)):
        there = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in there]  # of one row added up
    norms = torch._foreach_norm(there) if there else ()
    if len(there) == len(tensors) and len({*map(DEVICE, norms)}) == 1:
        return torch.stack(norms)
    device, left = there[0].device if there else None, iter(norms)
    none = torch.full((), NONE, device=device)
    return torch.stack([none if tensor is None else next(left).to(device) for tensor in tensors])


def norms_by_layer(norms: Tensor, parts_of: Sequence[int], count: int) -> Tensor:
    """Return the norms of layers from those of their parts; nan for a layer all of whose parts are below 0.

    >>> norms_by_layer(torch.tensor([[3., 4., -1., -1.]]), [0, 0, 1, 1], 2)
    tensor([[5., nan]])
    """
    index, is_there = torch.tensor(parts_of, device=norms.device), ~(norms < 0)  # a norm that is nan is there
    zeros = norms.new_zeros(len(norms), count)
    squares = zeros.index_add(1, index, torch.where(is_there, norms**2, 0))
    return torch.where(zeros.index_add(1, index, is_there.to(norms)) > 0, squares.sqrt(), torch.nan)
