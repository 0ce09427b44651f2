"""The norms of layers, made of the norms of their parameters, without a wait for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from train_manager.model.sharding import as_whole

NONE: Final = -1.0  # the norm of a missing tensor; nan is the norm of a tensor with a nan


def norms_of(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the norm of each tensor; below 0 for None. All ranks compute the norms of sharded tensors together.

    >>> norms_of([torch.tensor([3., 4.]), None])
    tensor([ 5., -1.])
    """
    try:
        norms: Tensor = as_whole(torch.stack(torch._foreach_norm(tensors)))  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # a tensor is None or sparse, or they are on several devices: both are rare
        return _norms_of_any(tensors)
    return norms


def _norms_of_any(tensors: Sequence[Tensor | None]) -> Tensor:
    there = [_dense(tensor) for tensor in tensors if tensor is not None]
    device, norms = there[0].device if there else None, iter(torch._foreach_norm(there) if there else ())
    none = torch.full((), NONE, device=device)
    return torch.stack([none if tensor is None else as_whole(next(norms)).to(device) for tensor in tensors])


def _dense(tensor: Tensor) -> Tensor:
    """Return the numbers of a sparse gradient, with equal rows added up; another tensor as it is."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def norms_by_layer(norms: Tensor, parts_of: Sequence[int], count: int) -> Tensor:
    """Return the norms of layers from the norms of their parameters; nan for a layer whose norms are all below 0.

    >>> norms_by_layer(torch.tensor([[3., 4., -1., -1.]]), [0, 0, 1, 1], 2)
    tensor([[5., nan]])
    """
    # ~(norms < 0) and not norms >= 0, because a norm of nan belongs to a tensor that is there.
    index, is_there = torch.tensor(parts_of, device=norms.device), ~(norms < 0)
    zeros = norms.new_zeros(len(norms), count)
    squares = zeros.index_add(1, index, torch.where(is_there, norms**2, 0))
    return torch.where(zeros.index_add(1, index, is_there.to(norms)) > 0, squares.sqrt(), torch.nan)


@torch.no_grad()
def changes_by_layer(
    tensors: Sequence[Tensor], before: Sequence[Tensor], parts_of: Sequence[int], count: int
) -> Tensor:
    """Return the norm of the change of each layer over its norm before; nan where nothing has changed.

    >>> changes_by_layer([torch.tensor([3., 4.5]), torch.ones(1)], [torch.tensor([3., 4.]), torch.ones(1)], [0, 1], 2)
    tensor([0.1000,    nan])
    """
    changes = norms_of(torch._foreach_sub([*tensors], [*before]))
    of_layers = norms_by_layer(torch.stack([changes, norms_of(before)]), parts_of, count)
    return torch.where(of_layers[0] > 0, of_layers[0] / of_layers[1], torch.nan)
