"""Buffers that a forward pass must not change, for ``SAM`` and its like; and buffers that a state is loaded into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def give_buffers_their_own_memory(module: nn.Module) -> None:
    """Copy the expanded buffers of a module, so that a state can be loaded into them.

    >>> module = nn.Module()
    >>> module.register_buffer("mask", torch.ones(1).expand(3))
    >>> give_buffers_their_own_memory(module)
    >>> module.mask.stride()
    (1,)
    """
    for inner in module.modules():
        for name, buffer in inner.named_buffers(recurse=False):
            if not is_lazy(buffer) and buffer.layout is torch.strided and _is_expanded(buffer):
                setattr(inner, name, buffer.clone(memory_format=torch.contiguous_format))


def _is_expanded(tensor: Tensor) -> bool:
    """Return whether several numbers of a tensor share one place in memory, so that ``copy_`` refuses to write."""
    return any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))


@contextmanager
def preserve_buffers(*modules: nn.Module) -> Iterator[None]:
    """Restore all buffers on exit, such as the running statistics of norms.

    >>> norm = nn.BatchNorm1d(1)
    >>> with preserve_buffers(norm):
    ...     _ = norm(torch.tensor([[1.], [3.]]))
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.]), tensor(0))
    """
    before = [
        (module, name, buffer, buffer.detach().clone())
        # By id: two modules may share a module inside, whose buffers are copied once.
        for module in {id(inner): inner for outer in modules for inner in outer.modules()}.values()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        try:
            _put_back(before)
        except KeyboardInterrupt:  # in the middle of the buffers: some would keep the numbers of the block
            _put_back(before)
            raise


@torch.no_grad()
def _put_back(before: list[tuple[nn.Module, str, Tensor, Tensor]]) -> None:
    for module, name, buffer, copy in before:
        buffer.copy_(copy)
        setattr(module, name, buffer)  # `self.mean = 0.9 * self.mean + ...` in a forward pass replaces the tensor
