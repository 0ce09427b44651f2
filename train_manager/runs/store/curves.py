"""Long series in a few points: the mean, the lowest and the highest value of each stretch of steps."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import Series

MOST: Final = 1500  # points of a curve

Numbers = NDArray[np.float64]


class Curve(NamedTuple):
    """A series in at most so many points.

    Attributes:
        steps: the middle of each stretch.
        mean, low, high: of its values.
        times: the mean of its times, in seconds since 1970.
    """

    steps: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    times: Numbers


def curves_of(
    reader: MetricReader, run: str | None = None, most: int = MOST, name: str | None = None, stage: str | None = None
) -> dict[Series, Curve]:
    """Return the curve of each series that counts for a run."""
    raise NotImplementedError
