"""Patience: how long to wait for a number to get better."""

from __future__ import annotations

from typing import final


@final
class Patience:
    """Counts how often in a row a number was no better than the best before; it knows nothing of training.

    >>> patience = Patience(2, mode="min")
    >>> [patience.is_over(value) for value in (.5, .6, .4, .4, .7)]
    [False, False, False, False, True]
    >>> patience.best, patience.waited
    (0.4, 2)

    nan is never better.

    Args:
        limit: over when so many numbers in a row were no better.
        mode: "min" where less is better, "max" where more is.
        min_delta: a number is better only where it is so by more than this.

    Attributes:
        best: the best number so far; None before the first.
        waited: numbers in a row that were no better.
    """

    def __init__(self, limit: int, mode: str, min_delta: float = 0.0) -> None:
        self.limit = limit
        self.mode = mode
        self.min_delta = min_delta
        self.best: float | None = None
        self.waited = 0

    def is_over(self, value: float) -> bool:
        """Take in one more number."""
        if self._is_better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.limit

    def _is_better(self, value: float) -> bool:
        if self.best is None:
            return value == value  # all but nan
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta
