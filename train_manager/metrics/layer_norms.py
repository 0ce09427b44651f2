"""The norms of layers, made of those of their parameters, without a wait for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

NONE: Final = -1.0  # in place of the norm of a tensor that is not there; nan is the norm of one with a nan in it


def norms_of(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the norm of each tensor; below 0 for None.

    >>> norms_of([torch.tensor([3., 4.]), None])
    tensor([ 5., -1.])
    """
    try:
        return torch.stack(torch._foreach_norm(tensors))  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # there is a None or a sparse one, or they are on several devices
        return _norms_of_any(tensors)


def _norms_of_any(tensors: Sequence[Tensor | None]) -> Tensor:
    there = [_dense(tensor) for tensor in tensors if tensor is not None]
    device, norms = there[0].device if there else None, iter(torch._foreach_norm(there) if there else ())
    none = torch.full((), NONE, device=device)
    return torch.stack([none if tensor is None else next(norms).to(device) for tensor in tensors])


def _dense(tensor: Tensor) -> Tensor:
    """Return the numbers of a sparse gradient, those of one row added up; another tensor as it is."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def norms_by_layer(norms: Tensor, parts_of: Sequence[int], count: int) -> Tensor:
    """Return the norms of layers from those of their parts; nan for a layer all of whose parts are below 0.

    >>> norms_by_layer(torch.tensor([[3., 4., -1., -1.]]), [0, 0, 1, 1], 2)
    tensor([[5., nan]])
    """
    index, is_there = torch.tensor(parts_of, device=norms.device), ~(norms < 0)  # a norm that is nan is there
    zeros = norms.new_zeros(len(norms), count)
    squares = zeros.index_add(1, index, torch.where(is_there, norms**2, 0))
    return torch.where(zeros.index_add(1, index, is_there.to(norms)) > 0, squares.sqrt(), torch.nan)


@torch.no_grad()
def changes_by_layer(
    tensors: Sequence[Tensor], before: Sequence[Tensor], parts_of: Sequence[int], count: int
) -> Tensor:
    """Return how much each layer has changed: the norm of the change over that before; nan where nothing has changed.

    >>> changes_by_layer([torch.tensor([3., 4.5]), torch.ones(1)], [torch.tensor([3., 4.]), torch.ones(1)], [0, 1], 2)
    tensor([0.1000,    nan])
    """
    changes = norms_of(torch._foreach_sub([*tensors], [*before]))
    of_layers = norms_by_layer(torch.stack([changes, norms_of(before)]), parts_of, count)
    return torch.where(of_layers[0] > 0, of_layers[0] / of_layers[1], torch.nan)
