"""Series of a training in windows of steps: single steps at first, then wider and wider ones.

A full window never changes, so a store can have it as soon as it is full. A series of scalars is one of vectors with
one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers: TypeAlias = NDArray[Any]
SINGLE: Final = 1000  # the number of windows of one step
THEN: Final = 500  # the number of windows of 2 steps, then of 4, of 8 and so on
AT_ONCE: Final = 4096  # points of a curve that are moved into windows together


def width_after(windows: int) -> int:
    """Return the number of steps of the next window, after so many windows.

    >>> [width_after(windows) for windows in (0, 999, 1000, 1499, 1500, 2000)]
    [1, 1, 2, 2, 4, 8]
    """
    return 1 if windows < SINGLE else int(2 ** ((windows - SINGLE) // THEN + 1))


class SeriesWindows(NamedTuple):
    """Windows of steps: the last step of each, its examples, and for each value the mean and the largest.

    A value that is nan is left out of its window, and is nan if all are.
    """

    steps: Numbers
    weights: Numbers
    means: Numbers  # a row for each window
    largest: Numbers  # likewise

    @classmethod
    def single(cls, steps: ArrayLike, weights: ArrayLike, values: Numbers) -> SeriesWindows:
        """Return a window for each step, in which the mean and the largest are the same."""
        return cls(np.asarray(steps), np.asarray(weights, float), values, values)

    def part(self, first: int, end: int | None = None) -> SeriesWindows:
        """Return the windows from the first to the one before the end."""
        return SeriesWindows(*(each[first:end] for each in self))

    def joined(self, starts: ArrayLike) -> SeriesWindows:
        """Return wider windows, which begin at these windows; in each of them every example counts once.

        >>> steps = SeriesWindows.single([1, 2], [16, 16], np.array([[1.0], [3.0]]))
        >>> [each.tolist() for each in steps.joined([0])]
        [[2], [32.0], [[2.0]], [[3.0]]]
        """
        if len(starts := np.asarray(starts)) == len(self.steps):
            return self
        ends = np.append(starts[1:], len(self.steps)) - 1
        with np.errstate(all="ignore"):  # infinity less infinity, and windows that have only nan
            # A nan weighs nothing. In 64 bits, because the weights are.
            weights = np.where(np.isnan(self.means), 0.0, self.weights[:, None])
            sums = np.add.reduceat(np.where(weights > 0, self.means * weights, 0.0), starts)
            means = sums / np.add.reduceat(weights, starts)
        return SeriesWindows(
            self.steps[ends],
            np.add.reduceat(self.weights, starts),
            means.astype(self.means.dtype),
            np.fmax.reduceat(self.largest, starts),
        )


def chained(*parts: SeriesWindows) -> SeriesWindows:
    """Return the windows of all parts, one after the other."""
    parts = tuple(part for part in parts if len(part.steps)) or parts[:1]
    return SeriesWindows(*map(np.concatenate, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]


def thin_out(windows: SeriesWindows, most: int) -> SeriesWindows:
    """Return at most so many windows, for a picture: neighbours are joined until all have about as many examples.

    The small last batch of an epoch is joined to the next one, so that it is not a spike.

    >>> windows = SeriesWindows.single([1, 2, 3], [64, 3, 64], np.array([[1.0], [9], [1]]))
    >>> [each.tolist() for each in thin_out(windows, 3)[:2]]
    [[1, 3], [64.0, 67.0]]
    """
    weights: list[float] = windows.weights.tolist()
    wanted = max(weights, default=0.0)
    # Doubled, so that a picture that is drawn again after a few steps has the same points, and some more.
    while len(starts := _starts_of(weights, wanted)) > most:
        wanted *= 2
    return windows.joined(starts) if weights else windows


def _starts_of(weights: Sequence[float], wanted: float) -> list[int]:
    """Return where windows begin that have about the wanted weight each."""
    starts, within = [0], 0.0
    for number, weight in enumerate(weights):
        if within + weight / 2 > wanted:
            starts.append(number)
            within = 0.0
        within += weight
    # The last window may be too small: the one before takes it.
    return starts[:-1] if within < wanted / 2 and len(starts) > 1 else starts


@final
class WindowedSeries:
    """Vectors of a training in windows that grow with it: some 4,300 windows for 100,000 steps.

    >>> series = WindowedSeries(values=1)
    >>> series.extend(SeriesWindows.single([1, 2], [16, 16], np.array([[0.5], [0.25]])))
    >>> series.full.means.tolist()
    [[0.5], [0.25]]

    Args:
        values: the length of a vector.
    """

    def __init__(self, values: int) -> None:
        none = SeriesWindows.single([], [], np.zeros((0, values), np.float32))
        # Parts that are chained as they are read: to chain them at each step would copy the whole series.
        self._full, self._open = [none], [none]
        self._num_full = self._num_open = 0

    def extend(self, steps: SeriesWindows) -> None:
        """Add single steps, and join those that fill windows."""
        self._open.append(steps)
        self._num_open += len(steps.steps)
        if self._num_open < width_after(self._num_full):
            return
        steps = self.open
        while count := self._windows_in(len(steps.steps)):
            width = width_after(self._num_full)
            self._full.append(steps.part(0, count * width).joined(range(0, count * width, width)))
            self._num_full += count
            steps = steps.part(count * width)
        self._open, self._num_open = [steps], len(steps.steps)

    def _windows_in(self, steps: int) -> int:
        """Return how many windows so many steps fill, before the width doubles."""
        width = width_after(self._num_full)
        of_this_width = SINGLE - self._num_full if width == 1 else THEN - (self._num_full - SINGLE) % THEN
        return min(steps // width, of_this_width)

    @property
    def full(self) -> SeriesWindows:
        """The full windows."""
        self._full = [chained(*self._full)]
        return self._full[0]

    @property
    def open(self) -> SeriesWindows:
        """Single steps, which do not fill a window yet."""
        self._open = [chained(*self._open)]
        return self._open[0]

    def since(self, number: int) -> SeriesWindows:
        """Return the full windows from this number on."""
        first, parts = self._num_full, list[SeriesWindows]()
        for part in reversed(self._full):
            first -= len(part.steps)
            parts.append(part.part(max(0, number - first)))
            if first <= number:
                break
        return chained(*reversed(parts))

    def all(self) -> SeriesWindows:
        """Return the full windows, and one of the steps that do not fill a window yet."""
        return chained(self.full, self.open.joined([0])) if self._num_open else self.full

    def state(self) -> tuple[int, SeriesWindows]:
        """Return the number of full windows, and these with the steps that do not fill a window yet."""
        return self._num_full, chained(self.full, self.open)

    def load(self, num_full: int, windows: SeriesWindows) -> None:
        """Continue from what ``state`` returned."""
        self._full, self._open = [windows.part(0, num_full)], [windows.part(num_full)]
        self._num_full, self._num_open = num_full, len(windows.steps) - num_full


@final
class GrowingCurve:
    """A curve of a training, in windows of which the first 1,000 are single points.

    >>> curve = GrowingCurve()
    >>> for x in (1, 2):
    ...     curve.append(x, 2 * x)
    >>> curve.x, curve.y
    ([1.0, 2.0], [2.0, 4.0])

    A window is drawn at its last x. Values that are not finite are left out of its mean; if no value is finite, the
    mean is nan, which draws a gap.
    """

    def __init__(self) -> None:
        self._series = WindowedSeries(values=1)
        self._waiting: list[float] = []  # x, weight and y of points that are not in the series yet, one after the other

    def append(self, x: float, y: float, weight: float = 1.0) -> None:
        """Add a point at the end, which stands for so many examples."""
        waiting = self._waiting  # read once: each batch comes here
        waiting += (x, weight, y)
        if len(waiting) >= 3 * AT_ONCE:
            self._take()

    @property
    def x(self) -> list[float]:
        """The x of at most 1,000 points, which stand for equally many each."""
        x: list[float] = self._drawn().steps.tolist()
        return x

    @property
    def y(self) -> list[float]:
        """The y of these points."""
        y: list[float] = self._drawn().means[:, 0].tolist()
        return y

    def _drawn(self) -> SeriesWindows:
        # The windows as they are would show the noise of single points at first, and later only that of means.
        return thin_out(self.windows(), SINGLE)

    def windows(self) -> SeriesWindows:
        """Return all windows; the last one may not be full."""
        self._take()
        return self._series.all()

    def _take(self) -> None:
        if self._waiting:
            x, weights, y = np.array(self._waiting, float).reshape(-1, 3).T
            self._waiting.clear()
            self._series.extend(SeriesWindows.single(x, weights, np.where(np.isfinite(y), y, np.nan)[:, None]))

    def state_dict(self) -> dict[str, Any]:
        """Return all windows and the points of the open one, as plain lists and numbers."""
        self._take()
        full, points = self._series.state()
        return {
            "full": full,
            "x": points.steps.tolist(),
            "y": points.means[:, 0].tolist(),
            "weights": points.weights.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        points = SeriesWindows.single(state["x"], state["weights"], np.array(state["y"], float)[:, None])
        self._waiting.clear()
        self._series.load(state["full"], points)
