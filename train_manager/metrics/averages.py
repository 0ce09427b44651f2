"""Averages of scalar tensors that stay on their device: exponential moving, or weighted."""

from __future__ import annotations

import math
import operator
from typing import final

import torch
from torch import Tensor

from train_manager.metrics.deferred import DeferredScalars, numbers


@final
class ExponentialMovingAverage:
    """An average that follows its values: ``average + share * (value - average)``.

    The first ``1 / share`` values are averaged plainly, so that the first value does not dominate.

    >>> average = ExponentialMovingAverage(share=0.5)
    >>> for value in (4., 2., 1.):
    ...     average.append(torch.tensor(value))
    >>> average.value
    tensor(2.)

    Args:
        share: the weight of a new value; with 0.01 the average spans about the last hundred values.
    """

    def __init__(self, share: float = 0.01) -> None:
        self.share = share
        self.count = 0
        self.value: Tensor | None = None

    def append(self, value: Tensor) -> None:
        """Add a value, without reading it on the host."""
        value = value.detach()
        self.count += 1
        share = max(self.share, 1 / self.count)
        # A new tensor, because a caller may still hold the last one.
        self.value = value.clone() if self.value is None else torch.lerp(self.value.to(value), value, share)


@final
class WeightedMean:
    """The weighted mean of scalar tensors; it is read rarely.

    >>> mean = WeightedMean()
    >>> mean.append(torch.tensor(1.), weight=3)
    >>> mean.append(torch.tensor(5.), weight=1)
    >>> mean.value()
    2.0
    """

    def __init__(self) -> None:
        self._scalars = DeferredScalars()
        self._weights: list[float] = []
        self._sum = self._weight = 0.0

    def append(self, value: Tensor, weight: float) -> None:
        """Add a value, without reading it on the host."""
        is_full = self._scalars.append(value)
        self._weights.append(weight)
        if is_full:
            self._take()

    def value(self) -> float:
        """Return the mean so far; nan if there is none."""
        self._take()
        return self._sum / self._weight if self._weight else math.nan

    def _take(self) -> None:
        weights = numbers(self._weights)  # they may be tensors
        self._weights.clear()
        self._sum += sum(map(operator.mul, self._scalars.take(), weights))
        self._weight += sum(weights)
