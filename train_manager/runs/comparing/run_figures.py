"""The figures of a run: what it has measured, and what the runs that it goes on from had measured before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, zip_longest
from typing import Final

from train_manager.metrics.monitor import mode_of
from train_manager.runs.comparing.compared import Band, Points
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCH_SIZE, BATCHES, EPOCHS, EVALUATIONS, FILE, Series
from train_manager.runs.record.metric_stretches import Stretch
from train_manager.runs.record.run_paths import FoundRun, chain_of
from train_manager.telling.errors import InputError

MOST_POINTS: Final = 500  # of a curve
SETTINGS: Final = (BATCH_SIZE, "lr")


def points_of(run: FoundRun) -> dict[str, Points]:
    """Return step and value of each figure, as "loss" (of epochs, or of batches if there are none) and "valid/loss".

    Raises:
        InputError: the file of figures cannot be read.
    """
    if not (run.train_dir / FILE).is_file():
        return {}
    reader = MetricReader(run.train_dir)
    found = _of_stage(reader, run, None, EPOCHS)
    _add(found, _of_stage(reader, run, None, EVALUATIONS))
    of_batches = {series.name: _name(series) for series in reader.series() if series.stage == BATCHES}
    rest = [name for name, shown in of_batches.items() if shown not in found]
    if not all(map(is_setting, rest)):
        _add(found, _stretches_of_batches(reader, run))
    for name in filter(is_setting, rest):
        _add(found, _of_stage(reader, run, name, BATCHES))
    return found


def _add(found: dict[str, Points], others: Mapping[str, Points]) -> None:
    """Add what was not found before."""
    found.update({name: points for name, points in others.items() if name not in found})


def _of_stage(reader: MetricReader, run: FoundRun, name: str | None, stage: str) -> dict[str, Points]:
    """Return the curves of a run and of those that it goes on from."""
    found: dict[str, Points] = {}
    for id_, first, last in lineage_of(run):
        for series, scalars in reader.scalars(name, stage, run=id_).items():
            points = zip(scalars.steps, scalars.values, strict=True)
            found.setdefault(_name(series), []).extend((step, value) for step, value in points if first <= step <= last)
    return {name: points for name, points in found.items() if points}


def _stretches_of_batches(reader: MetricReader, run: FoundRun) -> dict[str, Points]:
    """Return the curves of what each batch has left: of a long run the means of stretches of steps."""
    found: dict[str, Points] = {}
    for id_, first, last in lineage_of(run):
        for series, stretches in reader.stretches(stage=BATCHES, run=id_).items():
            kept = [(float(one.last), one.mean) for one in stretches if first <= one.last <= last]
            if kept and not is_setting(series.name):
                found.setdefault(_name(series), []).extend(kept)
    return found


def last_and_best(name: str, points: Points) -> tuple[float, tuple[float, float] | None]:
    """Return the last value, and step and value of the best one, if the name tells which is better.

    >>> last_and_best("valid/loss", [(10, 0.5), (20, 0.25), (30, 0.375)])
    (0.375, (20, 0.25))
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    try:
        sign = 1 if mode_of(name, None, "compare_runs") == "min" else -1
    except InputError:
        return points[-1][1], None
    return points[-1][1], min(finite, key=lambda point: sign * point[1], default=None)


def thinned(points: Points) -> list[Stretch]:
    """Return a curve that a picture can show: neighbours as stretches, in which a spike is still seen.

    >>> [(one.first, one.mean, one.highest) for one in thinned([(step, step % 2) for step in range(1000)])][:2]
    [(0, 0.5, 1), (2, 0.5, 1)]
    """
    width = -(-len(points) // MOST_POINTS)
    return [stretch(points[start : start + width]) for start in range(0, len(points), width or 1)]


def stretch(points: Points) -> Stretch:
    """Return what some points have come to; nan is left out if others are there."""
    values = [value for _, value in points if not math.isnan(value)]
    nans = len(points) - len(values)
    mean = sum(values) / len(values) if values else math.nan
    lowest, highest = min(values, default=math.nan), max(values, default=math.nan)
    return Stretch(points[0][0], points[-1][0], 0, 0.0, len(points), nans, mean, lowest, highest)


def middle(of: Stretch) -> float:
    """Return the step at which a picture shows a stretch."""
    return (of.first + of.last) / 2


def is_setting(name: str, *names: str) -> bool:
    """Return whether a figure is stored where it changes, and holds until then.

    >>> is_setting("lr/generator"), is_setting("warm up/batch_size"), is_setting("loss")
    (True, True, False)
    """
    return not {*name.split("/")}.isdisjoint(names or SETTINGS)


def curve_of(name: str, figures: Mapping[str, Points]) -> Points:
    """Return what a picture shows of a figure; a learning rate goes on until it changes, or the run ends.

    >>> curve_of("lr", {"lr": [(1, 0.5), (4, 0.25)], "loss": [(1, 0.7), (6, 0.5)]})
    [(1.0, 0.5), (4.0, 0.5), (4.0, 0.25), (6.0, 0.25)]
    """
    points = figures.get(name, [])
    if not points or not is_setting(name):
        return [(middle(one), one.mean) for one in thinned(points)]
    last = max(of_one[-1][0] for of_one in figures.values() if of_one)
    held = [(step, value) for (_, value), (step, _) in pairwise([*points, (last, 0.0)])]
    turns = [point for pair in zip_longest(points, held) for point in pair if point is not None]
    return [(middle(one), one.mean) for one in thinned(turns)]


def band_of(name: str, figures: Mapping[str, Points]) -> Band:
    """Return between which values a figure was around each point of its curve; none if the curve has all points."""
    points = figures.get(name, [])
    if is_setting(name) or len(points) <= MOST_POINTS:
        return []
    return [(middle(one), one.lowest, one.highest) for one in thinned(points)]


def lineage_of(run: FoundRun) -> Iterator[tuple[str, float, float]]:
    """Yield the runs that a run goes on from, the oldest first, and itself; each with its first and last step."""
    chain = chain_of(run.entry, run.entries)
    lasts = [(entry.get("goes_on_from") or {}).get("step", math.inf) for entry in chain[1:]]
    first = -math.inf
    for entry, last in zip(chain, [*lasts, math.inf], strict=True):
        yield str(entry["id"]), first, last
        first = math.nextafter(last, math.inf)


def _name(series: Series) -> str:
    parts = (series.phase, series.datasource if series.stage == EVALUATIONS else "", series.name)
    return "/".join(part for part in parts if part)
