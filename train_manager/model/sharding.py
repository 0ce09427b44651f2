"""Tensors of which each process has a shard (torch's DTensor), and whole tensors that meet them.

torch refuses an operation on a shard and a whole tensor, so a moment, an average or a loaded weight must be sharded as
its parameter is.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from torch import Tensor
from torch.optim import Optimizer

T = TypeVar("T")


def is_sharded(value: Any) -> bool:
    """Return whether a value is a tensor of which this process has a shard."""
    return hasattr(value, "full_tensor")  # not by the class: its import takes time, and one process needs none of it


def as_sharded(value: T, like: Any) -> T:
    """Return a whole tensor sharded as another one is; the value itself if that one is whole, or no shard is needed.

    >>> import torch
    >>> value = torch.zeros(2)
    >>> as_sharded(value, torch.ones(2)) is value
    True

    Each process has the whole tensor, so none is sent.
    """
    if not is_sharded(like) or is_sharded(value) or not isinstance(value, Tensor) or not value.dim():
        return value
    from torch.distributed.tensor import distribute_tensor

    whole = value.detach().to(like.device)
    return cast(T, distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None))


def as_whole(value: Any) -> Any:
    """Return a sharded tensor whole, for which all processes must call this; any other value as it is."""
    return value.full_tensor() if is_sharded(value) else value


def shard_moments(optimizer: Optimizer) -> None:
    """Shard the loaded state of an optimizer as its parameters are."""
    for parameter, state in optimizer.state.items():
        if is_sharded(parameter):
            state.update({name: as_sharded(value, parameter) for name, value in state.items()})
