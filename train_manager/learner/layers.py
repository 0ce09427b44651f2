"""Modules that join what several others give, for files."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train_manager.rebuilding.recorded import recorded


@recorded
class Concatenate(nn.Module):
    """Join what several modules give, along one axis.

    >>> Concatenate()(torch.zeros(4, 2), torch.zeros(4, 3)).shape
    torch.Size([4, 5])

    Args:
        dim: the axis; 1 is that of features, or of channels.
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *parts: Tensor) -> Tensor:
        """Return all parts in one tensor."""
        return torch.cat(parts, self.dim)


@recorded
class Sum(nn.Module):
    """Add what several modules give, as a residual connection does.

    >>> Sum()(torch.ones(2), torch.ones(2))
    tensor([2., 2.])
    """

    def forward(self, *parts: Tensor) -> Tensor:
        """Return the sum of all parts."""
        return torch.stack(parts).sum(0)
