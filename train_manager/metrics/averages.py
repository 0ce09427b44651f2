"""Averages of scalar tensors that stay on their device: exponential moving, or weighted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import DeferredScalars, add_totals, numbers, on_host


def in_32_bits(value: Any) -> Any:
    """Return a tensor of a 16-bit float as one of 32 bits, for a sum; anything else as it is.

    With 8 bits of precision, a sum in bfloat16 does not grow any more from 256 times its summands on.
    """
    is_short = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if is_short else value


def as_float(value: Tensor) -> Tensor:
    """Return a tensor of whole numbers as one of 64-bit floats, which hold them up to 2 ** 53; another as it is.

    >>> as_float(torch.tensor(2**24 + 1)).item()
    16777217.0
    """
    if value.is_floating_point():
        return value
    return value.float() if value.is_mps else value.double()  # MPS has no 64-bit floats


@final
class ExponentialMovingAverage:
    """An average that follows its values, in at least 32 bits: ``average + share * (value - average)``.

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
        self.count = 0  # of the values so far
        self.value: Tensor | None = None

    def append(self, value: Tensor) -> None:
        """Add a value, without reading it on the host."""
        value = in_32_bits(value.detach())
        self.count += 1
        # 1 / count makes it the plain mean of the first values.
        share = max(self.share, 1 / self.count)
        # A new tensor, because a caller may still hold the last one, and a later
        # read must give it the old number. `to`: a loaded average is on the CPU.
        self.value = value.clone() if self.value is None else torch.lerp(self.value.to(value), value, share)

    def state_dict(self) -> dict[str, Any]:
        """Return the average, a tensor or None, and the number of its values."""
        return {"value": self.value, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.value, self.count = state["value"], state["count"]


def mean_of(total: Any, weight: Any) -> Any:
    """Return a mean from its totals; nan if the weight is 0.

    >>> mean_of(8.0 + 1.0, 2 + 1)  # the totals of two parts, added up
    3.0
    """
    try:
        return (as_float(total) if isinstance(total, Tensor) else total) / weight
    except ZeroDivisionError:  # Python raises; a tensor gives nan, without the wait that a comparison with 0 would cost
        return math.nan


@final
class WeightedMean:
    """The weighted mean of scalar tensors; it is read rarely.

    >>> mean = WeightedMean()
    >>> mean.append(torch.tensor(1.), weight=3)
    >>> mean.append(torch.tensor(5.), weight=1)
    >>> mean.totals(), mean.value()
    ((8.0, 4.0), 2.0)
    """

    def __init__(self) -> None:
        self._scalars = DeferredScalars()  # values that are not in the sums yet
        self._weights: list[float] = []  # their weights, which may be tensors
        self._sum: Any = 0.0
        self._weight = 0.0

    def append(self, value: Tensor, weight: float) -> None:
        """Add a value, without reading it on the host; of counts in a tensor of several numbers, the sum is kept."""
        if value.dim():
            # A sum of counts of other classes than before begins anew, as `add_counts` does it in an evaluation.
            goes_on = isinstance(self._sum, Tensor) and self._sum.shape == value.shape
            self._sum = value * weight + (self._sum.to(value) if goes_on else 0)
            self._weight += weight
            return
        is_full = self._scalars.append(value)
        self._weights.append(weight)
        if is_full:
            self.totals()

    def value(self) -> float:
        """Return the mean so far; nan if there is none."""
        return mean_of(*self.totals())  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, float]:
        """Return the sums so far; this reads the values that are not in them yet."""
        return dict(zip(("sum", "weight"), map(on_host, self.totals()), strict=True))

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore what ``state_dict`` returned."""
        self._scalars, self._weights = DeferredScalars(), []
        self._sum, self._weight = state["sum"], state["weight"]

    def totals(self) -> tuple[float, float]:
        """Return the sum and the weight so far; this reads the values that are not in them yet."""
        weights = numbers(self._weights)
        self._weights.clear()
        # One by one, not with sum(): since Python 3.12 sum() compensates rounding within one call, so that its last bit
        # would depend on when a checkpoint has read the totals before.
        for value, weight in zip(self._scalars.take(), weights, strict=True):
            self._sum += value * weight
            self._weight += weight
        return self._sum, self._weight


@final
class WeightedMeans(dict[str, WeightedMean]):
    """Weighted means by name; each begins with its first value.

    >>> means = WeightedMeans()
    >>> means.append("accuracy", torch.tensor(.5), weight=4)
    >>> means.totals()
    {'accuracy': (2.0, 4.0)}
    """

    def append(self, name: str, value: Tensor, weight: float) -> None:
        """Add a value to the mean of this name, without reading it on the host."""
        if name not in self:
            self[name] = WeightedMean()
        self[name].append(value, weight)

    def totals(self) -> dict[str, tuple[float, float]]:
        """Return the sum and the weight of each mean; this reads the values that are not in them yet."""
        return {name: mean.totals() for name, mean in self.items()}

    def join(self, totals: Sequence[Mapping[str, tuple[float, float]]]) -> None:
        """Take the sums of all processes, of which one may lack names."""
        found: dict[str, tuple[float, float]] = {}
        for each in totals:
            add_totals(found, each)
        self.load_state_dict({name: {"sum": total, "weight": weight} for name, (total, weight) in found.items()})

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Return the sums so far; this reads the values that are not in them yet."""
        return {name: mean.state_dict() for name, mean in self.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        for name, saved in state.items():
            self[name] = WeightedMean()
            self[name].load_state_dict(saved)


def add_means(states: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the sum of what ``WeightedMeans.state_dict`` has returned in several processes.

    >>> add_means([{"accuracy": {"sum": 2.0, "weight": 4.0}}, {"accuracy": {"sum": 1.0, "weight": 1.0}}])
    {'accuracy': {'sum': 3.0, 'weight': 5.0}}
    """
    means = WeightedMeans()
    means.join([{name: (one["sum"], one["weight"]) for name, one in state.items()} for state in states])
    return means.state_dict()
