"""Which epoch, which example and which second a step was at: the other axes that curves can be drawn over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from train_manager.runs.comparing.measured import Measured
from train_manager.runs.store.curves import example_knots

Knots = list[tuple[float, float]]
"""Steps and values, between which a straight line leads."""

MOST: Final = 600  # knots of an axis


def clock(measured: Measured) -> dict[str, Knots]:
    """Return the other axes of a run: epochs, examples and seconds at steps."""
    epochs, last = measured.epochs, measured.last
    knots = {
        "epoch": epoch_knots(epochs, last) if epochs else [],
        "examples": example_knots(measured.sizes, last),
        "time": second_knots(measured.times, measured.pauses),
    }
    known = {name: [knot for knot in found if all(map(math.isfinite, knot))] for name, found in knots.items()}
    return {
        name: [(_digits(x), _digits(y)) for x, y in fewer(found)] for name, found in known.items() if len(found) > 1
    }


def _digits(value: float) -> float:
    return float(f"{value:.9g}")


def epoch_knots(rows: Sequence[Mapping[str, Any]], last: float) -> Knots:
    """Return how many epochs were done at a step; the last one may still be open.

    >>> epoch_knots([{"epoch": 1, "step": 20}, {"epoch": 2, "step": 40}], 50)
    [(0.0, 0.0), (20, 1), (40, 2), (50, 2.5)]
    """
    knots: Knots = [(0.0, 0.0), *((row["step"], row["epoch"]) for row in rows if not row.get("partial"))]
    # The open epoch is as long as the last whole one; the first epoch of a training fills the whole axis.
    (end, epoch), length = knots[-1], last
    if len(knots) > 1:
        length = (end - knots[-2][0]) / ((epoch - knots[-2][1]) or 1) or last
    return [*knots, (last, epoch + min(1.0, (last - end) / length))] if last > end else knots


def second_knots(times: Sequence[tuple[float, float]], pauses: Sequence[tuple[float, float]] = ()) -> Knots:
    """Return how many seconds of training had passed at a step, without the pauses before runs that resumed.

    >>> second_knots([(1, 100.0), (2, 101.0), (3, 501.0), (4, 502.0)], [(2, 500.0)])
    [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]

    Args:
        times: steps, and when they were, in seconds since any time.
        pauses: the last step before each run that resumed, and when that run began.
    """
    knots: Knots = [(times[0][0], 0.0)] if times else []
    for (step, time), (following, later) in pairwise(times):
        # Of the time between two steps only the part after the beginning of the resumed run was training.
        start = max((began for at, began in pauses if step <= at < following and began > time), default=time)
        knots.append((following, knots[-1][1] + max(0.0, later - start)))
    return knots


def fewer(knots: Sequence[tuple[float, float]]) -> Knots:
    """Return at most ``MOST`` knots, with the first one and the last one.

    >>> fewer([(step, step) for step in range(601)])[-2:]
    [(598, 598), (600, 600)]
    """
    stride = -(-len(knots) // MOST)
    return [*knots[: -1 : stride or 1], *knots[-1:]]
