"""Long series as curves of few points: the mean of each stretch of steps, its lowest and its highest value."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from train_manager.runs.store.reader import MetricReader, counting, history_of, newest_part, wanted_of
from train_manager.runs.store.rows import metrics_in
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, EPOCHS, EVALUATIONS, RANKS, Series
from train_manager.validation import require_count

Numbers: TypeAlias = NDArray[np.float64]
MOST: Final = 1500  # points of a curve: more than a plot has pixels
PIECE: Final = 5000  # rows that are fetched at once, so that memory holds one series, and not the file
SMALL: Final = 0.5  # share of the largest batch; a smaller batch is joined to the one before, or it would be a spike
SETTINGS: Final = (BATCH_SIZE, RANKS)
"""Series of batches that have a row where the value changes: a mean would be a value that no batch had."""


class Curve(NamedTuple):
    """A series in a few points; a series that has no more values than that has each of them.

    The last batch of an epoch may have far fewer examples than the others. It is joined to the batch before: the mean
    weights them by their examples, the lowest and the highest value leave the last batch out.

    Attributes:
        steps: the middle of each stretch.
        mean, low, high: of the values in the stretch; nan is left out, and a stretch without numbers is nan.
        times: the mean, in seconds since 1970.
    """

    steps: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    times: Numbers


class SeriesRows(NamedTuple):
    """The rows of a series, in the order of their steps."""

    steps: NDArray[np.int64]
    times: Numbers
    values: Numbers


SmallBatches: TypeAlias = Mapping[int, float]
"""Batches with less than half as many examples as the largest one: their shares of it, by their steps."""


def curves_of(
    reader: MetricReader,
    run: str | None = None,
    most: int = MOST,
    name: str | None = None,
    stage: str | None = None,
) -> dict[Series, Curve]:
    """Return the curve of each series that counts.

    A spike of one step is the highest value of its stretch. Of several evaluations at a step, the last one is taken.

    >>> import tempfile
    >>> from train_manager.extensions import MetricStore
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> [curve] = curves_of(MetricReader(folder), name="loss", stage="train_step_epoch").values()
    >>> curve.steps.tolist(), curve.mean.round(3).tolist()
    ([3.0, 6.0], [0.7, 0.676])

    Args:
        reader: of the metrics.
        run: the run_id of a run; None for what counts now.
        most: points of a curve.
        name: of the series; None for all.
        stage: where they were measured; None for all.

    Raises:
        InputError: ``most`` is not a number of at least 1, or the metrics cannot be read.
    """
    require_count(most, "most", at_least=1)
    small, found = dict[int, float](), dict[Series, Curve]()
    with reader.reading() as connection:
        part = newest_part(connection, run)
        for series, rows in _of_history(connection, part, name, stage):
            found[series] = curve_of(rows, most=most)
        if stage in (EPOCHS, EVALUATIONS):
            return found
        for series, rows in _of_scalars(connection, part, name, stage):
            if series.name == BATCH_SIZE and series.stage == BATCHES:
                small |= small_batches(rows.steps, rows.values)
            if name in (None, series.name) and stage in (None, series.stage):
                is_setting = series.stage == BATCHES and series.name in SETTINGS
                joined = small if series.stage == BATCHES and not is_setting else {}
                found[series] = curve_of(rows, joined, len(rows.steps) if is_setting else most)
    return found


def _of_scalars(
    connection: sqlite3.Connection, part: int | None, name: str | None, stage: str | None
) -> Iterator[tuple[Series, SeriesRows]]:
    """Yield the series of batches and of hooks, with the sizes of batches first."""
    wanted, _ = wanted_of(connection, name, stage)
    sizes, ids_of_sizes = wanted_of(connection, BATCH_SIZE, BATCHES)
    wanted |= sizes
    sql = (
        f"SELECT series, coalesce(own_step, scalars.step) AS place, time, value {counting('scalars')} "
        f"AND series IN ({', '.join(map(str, wanted))}) "
        f"ORDER BY series NOT IN ({ids_of_sizes}), series, place, scalars.rowid"
    )
    for id_, pieces in groupby(_pieces(connection.execute(sql, (part,))), key=lambda piece: piece[0]):
        columns = zip(*(columns for _, columns in pieces), strict=True)
        yield wanted[id_], SeriesRows(*map(np.concatenate, columns))


def _pieces(cursor: sqlite3.Cursor) -> Iterator[tuple[int, SeriesRows]]:
    """Yield the rows of a query in pieces, each of one series."""
    while rows := cursor.fetchmany(PIECE):
        ids, steps, times, values = zip(*rows, strict=True)
        # None, which the file has for nan, becomes nan.
        steps_of, times_of, values_of = np.array(steps, np.int64), np.array(times, float), np.array(values, float)
        bounds = (np.flatnonzero(np.diff(ids)) + 1).tolist()
        for start, end in pairwise([0, *bounds, len(ids)]):
            yield ids[start], SeriesRows(steps_of[start:end], times_of[start:end], values_of[start:end])


def _of_history(
    connection: sqlite3.Connection, part: int | None, name: str | None, stage: str | None
) -> Iterator[tuple[Series, SeriesRows]]:
    """Yield the series of epochs and evaluations; of several evaluations at a step, only the last one."""
    found: dict[Series, dict[int, tuple[float, float]]] = {}
    for of, row, time in history_of(connection, part):
        for series, value in metrics_in(of, row) if stage in (None, of) else ():
            if name in (None, series.name):
                found.setdefault(series, {})[row["step"]] = time, value
    for series, by_step in found.items():
        points = sorted((step, *point) for step, point in by_step.items())
        steps, times, values = zip(*points, strict=True)
        yield series, SeriesRows(np.array(steps, np.int64), np.array(times, float), np.array(values, float))


def small_batches(steps: NDArray[Any], sizes: Numbers) -> dict[int, float]:
    """Return the steps at which a single batch was less than half as large as the largest, with its share of that.

    >>> small_batches(np.array([1, 22, 23]), np.array([64.0, 4.0, 64.0]))
    {22: 0.0625}

    Args:
        steps: at which the size changes.
        sizes: from there on.
    """
    # A row one step later means that only this batch was small; a small batch at the end has none after it.
    lasts_one_step = np.append(np.diff(steps) == 1, True)
    shares = sizes / max(np.nanmax(sizes, initial=0.0), 1.0)
    is_small = lasts_one_step & (shares < SMALL)
    return dict(zip(steps[is_small].tolist(), shares[is_small].tolist(), strict=True))


def curve_of(rows: SeriesRows, small: SmallBatches = MappingProxyType({}), most: int = MOST) -> Curve:
    """Return the curve of rows that are in the order of their steps; neighbours are joined until ``most`` are left."""
    steps, times, values = rows
    shares = np.array([small.get(step, 1.0) for step in steps.tolist()]) if small else np.ones(len(steps))
    # A small batch belongs to the point of the batch before it, and values of one step are one point.
    between = np.diff(steps, prepend=steps[:1] - 2)
    heads = np.flatnonzero(~((between == 0) | ((between == 1) & (shares < 1))))
    lasts = steps[np.append(heads[1:], len(steps)) - 1]  # the last step of each point
    width = -(-len(heads) // most)  # points that are joined
    starts, firsts, ends = heads[::width], lasts[::width], np.append(lasts[width - 1 :: width], lasts[-1:])
    with np.errstate(all="ignore"):  # infinity less infinity, and stretches without a number
        weights = np.where(np.isnan(values), 0.0, shares)
        mean = np.add.reduceat(np.where(weights > 0, values * weights, 0.0), starts) / np.add.reduceat(weights, starts)
        low, high = (by.reduceat(np.where(shares < 1, np.nan, values), starts) for by in (np.fmin, np.fmax))
        # A batch with the small one that belongs to it has a value of its own: their mean.
        is_alone = (np.add.reduceat((shares == 1).astype(int), starts) < 2) | np.isnan(low)
        return Curve(
            firsts / 2 + ends[: len(starts)] / 2,
            mean,
            np.where(is_alone, mean, low),
            np.where(is_alone, mean, high),
            np.add.reduceat(times, starts) / np.diff(np.append(starts, len(steps))),
        )


def example_knots(sizes: Sequence[tuple[float, float]], last: float) -> list[tuple[float, float]]:
    """Return steps with the number of examples seen there, of the sizes of batches at the steps where these change.

    Between two of the steps a straight line leads.

    >>> example_knots([(1, 64), (22, 3), (23, 64)], 24)
    [(0.0, 0.0), (21, 1344.0), (22, 1347.0), (24, 1475.0)]
    """
    knots = [(0.0, 0.0)]
    for (step, size), (following, _) in pairwise([*sizes, (last + 1, 0.0)]):
        before, seen = knots[-1]
        # A size holds until the step before the next change.
        knots.append((following - 1, seen + size * (following - 1 - max(before, step - 1))))
    return knots if len(knots) > 1 else []
