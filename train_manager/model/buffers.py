"""Buffers that a forward pass must not change, for extensions that run a second one, such as ``SAM``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def preserved_buffers(*modules: nn.Module) -> Iterator[None]:
    """Restore all buffers on exit, such as the running statistics of norms.

    >>> norm = nn.BatchNorm1d(1)
    >>> with preserved_buffers(norm):
    ...     _ = norm(torch.tensor([[1.], [3.]]))
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.]), tensor(0))
    """
    before = [
        (module, name, buffer, buffer.detach().clone())
        for module in {id(inner): inner for outer in modules for inner in outer.modules()}.values()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer, copy in before:
                buffer.copy_(copy)
                setattr(module, name, buffer)  # `self.mean = 0.9 * self.mean + ...` has replaced the tensor
