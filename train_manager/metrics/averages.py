"""A mean that follows what it is a mean of."""

from __future__ import annotations

import math
import operator
from typing import final

import torch
from torch import Tensor

from train_manager.metrics.deferred import HeldScalars


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


@final
class WeightedMean:
    """The mean of scalar tensors, each with a weight; read rarely.

    >>> mean = WeightedMean()
    >>> mean.append(torch.tensor(1.), weight=3)
    >>> mean.append(torch.tensor(5.), weight=1)
    >>> mean.value()
    2.0
    """

    def __init__(self) -> None:
        self._scalars = HeldScalars()
        self._weights: list[float] = []
        self._sum = self._weight = 0.0

    def append(self, value: Tensor, weight: float) -> None:
        """Take one more in."""
        is_full = self._scalars.append(value)
        self._weights.append(weight)
        if is_full:
            self._fold()

    def value(self) -> float:
        """The mean so far; nan where there is none."""
        self._fold()
        return float(self._sum / self._weight) if self._weight else math.nan  # weights may be tensors

    def _fold(self) -> None:
        self._sum += sum(map(operator.mul, self._scalars.take(), self._weights))
        self._weight += sum(self._weights)
        self._weights.clear()
