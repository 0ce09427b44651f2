"""Measuring such that numbers can be compared on a machine that does other things too.

All cases take turns, in a new random order in each round, on the clock of the process's CPU time. A ratio is taken
inside a round, where both cases saw the same machine; what is shown is the median over rounds, and the quartiles.
"""

from __future__ import annotations

import gc
import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).parents[1]
Case = TypeVar("Case", bound=Hashable)


class Spread(NamedTuple):
    """A median between its quartiles."""

    low: float
    median: float
    high: float

    def shown(self, digits: int) -> str:
        """As in a table: ``3.24 [3.18, 3.31]``."""
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"

    def times(self, factor: float) -> Spread:
        """In another unit."""
        return Spread(self.low * factor, self.median * factor, self.high * factor)

    def width(self) -> float:
        """How far the farther quartile is from the median, as a share of it."""
        return max(self.high - self.median, self.median - self.low) / self.median

    def is_below(self, other: Spread) -> bool:
        """Whether it is smaller for sure: the quartiles do not overlap."""
        return self.high < other.low


def spread(values: Sequence[float]) -> Spread:
    """The quartiles of some values.

    >>> spread([4.0, 1.0, 2.0, 3.0, 5.0])
    Spread(low=2.0, median=3.0, high=4.0)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """How many times one case takes what another took, round by round."""
    return spread([a / b for a, b in zip(of, to, strict=True)])


def differences(of: Sequence[float], to: Sequence[float]) -> Spread:
    """How much more one case takes than another took, round by round."""
    return spread([a - b for a, b in zip(of, to, strict=True)])


def growth(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of y ~ x**exponent, by least squares on a log-log plane: 0 is flat, 1 a straight line.

    >>> round(growth([1, 10, 100], [5, 50, 500]), 6), round(growth([1, 10, 100], [7, 7, 7]), 6)
    (1.0, 0.0)
    """
    return statistics.linear_regression([math.log(v) for v in x], [math.log(v) for v in y]).slope


def interleaved(cases: Mapping[Case, Callable[[], float]], rounds: int, seed: int = 0) -> dict[Case, list[float]]:
    """Let each case measure itself once per round, in a new order each time.

    Args:
        cases: each runs what it measures, and returns the CPU seconds that one of it took.
        rounds: how many count; one more comes first, in which caches fill.
        seed: of the order.

    Returns:
        For each case what it took, round by round.
    """
    measured: dict[Case, list[float]] = {name: [] for name in cases}
    order = random.Random(seed)
    with collector_off():
        for number in range(rounds + 1):
            for name in order.sample(list(cases), len(cases)):
                seconds = cases[name]()
                if number > 0:
                    measured[name].append(seconds)
    return measured


def seconds_each(run: Callable[[int], object], times: int) -> float:
    """CPU seconds that one of many in a row takes; ``run(times)`` has the loop, so that no call is measured beside."""
    before = process_time()
    run(times)
    return (process_time() - before) / times


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection, which would strike one case for what another has left; what is there is never visited."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.unfreeze()


def in_fresh_process(code: str) -> Any:
    """What a piece of Python prints last, as JSON, in a process of its own."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])
