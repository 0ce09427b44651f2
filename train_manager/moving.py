"""A mean that follows what it is a mean of."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor


@final
class MovingMean:
    """The mean of the first values, and then one in which older values count less and less; on their device.

    >>> mean = MovingMean(share=0.5)
    >>> for value in (4., 2., 1.):
    ...     mean.append(torch.tensor(value))
    >>> mean.value
    tensor(2.)

    Args:
        share: what a new value counts, in the long run: 0.01 is a mean over about the last hundred.
    """

    def __init__(self, share: float = 0.01) -> None:
        self.share = share
        self.count = 0
        self.value: Tensor | None = None

    def append(self, value: Tensor) -> None:
        """Take one more in; nothing is read on the host."""
        value = value.detach()
        self.count += 1
        share = max(self.share, 1 / self.count)
        # A new tensor each time: the last one may be in somebody's hands.
        self.value = value.clone() if self.value is None else torch.lerp(self.value.to(value), value, share)
