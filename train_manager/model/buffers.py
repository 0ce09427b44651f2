"""The gradients that an optimizer would step with, and the buffers that a forward pass moves.

For extensions that work on gradients between ``train_backward`` and ``train_optimizer_step``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def preserved_buffers(*modules: nn.Module) -> Iterator[None]:
    """Put buffers back as they were, on any exit: running statistics of norms, and what else a forward pass moves.

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
                setattr(module, name, buffer)  # `self.mean = 0.9 * self.mean + ...` has put another in its place
