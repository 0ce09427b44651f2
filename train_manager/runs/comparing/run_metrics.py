"""The metrics of a run, after the metrics of the runs that it resumes from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, zip_longest
from typing import Final

from train_manager.metrics.monitor import mode_of
from train_manager.runs.comparing.compared import Band, Points
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCH_SIZE, BATCHES, EPOCHS, EVALUATIONS, FILE, RANKS, Series
from train_manager.runs.record.metric_stretches import Stretch
from train_manager.runs.record.run_paths import FoundRun, chain_of
from train_manager.telling.errors import InputError

MOST_POINTS: Final = 500  # points of a curve in a picture
SETTINGS: Final = (BATCH_SIZE, RANKS, "lr")


def points_of(run: FoundRun) -> dict[str, Points]:
    """Return step and value of each metric, as "loss" (of epochs, or of batches if there are none) and "valid/loss".

    Raises:
        InputError: the file of metrics cannot be read.
    """
    if not (run.train_dir / FILE).is_file():
        return {}
    reader = MetricReader(run.train_dir)
    # The metrics of epochs go first; metrics of batches are read, which takes longer, only if a name is missing there.
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
    """Add the metrics whose names were not found before."""
    found.update({name: points for name, points in others.items() if name not in found})


def _of_stage(reader: MetricReader, run: FoundRun, name: str | None, stage: str) -> dict[str, Points]:
    """Return the curves of a run and of the runs that it resumes from."""
    found: dict[str, Points] = {}
    for id_, first, last in lineage_of(run):
        for series, scalars in reader.scalars(name, stage, run=id_).items():
            points = dict(zip(scalars.steps, scalars.values, strict=True)).items()  # of a step the latest value
            found.setdefault(_name(series), []).extend((step, value) for step, value in points if first <= step <= last)
    return {name: points for name, points in found.items() if points}


def _stretches_of_batches(reader: MetricReader, run: FoundRun) -> dict[str, Points]:
    """Return the curves of the metrics of batches; for a long run, the means of stretches of steps."""
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
        # Neither "min" nor "max" is known for this name: it has no best value.
        sign = 1 if mode_of(name, None, "compare_runs") == "min" else -1
    except InputError:
        return points[-1][1], None
    return points[-1][1], min(finite, key=lambda point: sign * point[1], default=None)


def thin_out(points: Points) -> list[Stretch]:
    """Return a curve that a picture can show: neighbours as stretches, in which a spike is still seen.

    >>> [(one.first, one.mean, one.highest) for one in thin_out([(step, step % 2) for step in range(1000)])][:2]
    [(0, 0.5, 1), (2, 0.5, 1)]
    """
    # Rounded up, so that there are at most MOST_POINTS stretches.
    width = -(-len(points) // MOST_POINTS)
    return [stretch(points[start : start + width]) for start in range(0, len(points), width or 1)]


def stretch(points: Points) -> Stretch:
    """Return mean, lowest and highest value of some points; nan is left out if there are numbers."""
    values = [value for _, value in points if not math.isnan(value)]
    nans = len(points) - len(values)
    mean = sum(values) / len(values) if values else math.nan
    lowest, highest = min(values, default=math.nan), max(values, default=math.nan)
    return Stretch(points[0][0], points[-1][0], 0, 0.0, len(points), nans, mean, lowest, highest)


def middle(of: Stretch) -> float:
    """Return the step at which a picture shows a stretch."""
    return (of.first + of.last) / 2


def is_setting(name: str, *names: str) -> bool:
    """Return whether a metric is stored where it changes, and holds until then.

    >>> is_setting("lr/generator"), is_setting("warm up/batch_size"), is_setting("loss")
    (True, True, False)
    """
    return not {*name.split("/")}.isdisjoint(names or SETTINGS)


def curve_of(name: str, measured: Mapping[str, Points]) -> Points:
    """Return the curve of a metric in a picture; a learning rate holds until it changes, or the run ends.

    >>> curve_of("lr", {"lr": [(1, 0.5), (4, 0.25)], "loss": [(1, 0.7), (6, 0.5)]})
    [(1.0, 0.5), (4.0, 0.5), (4.0, 0.25), (6.0, 0.25)]
    """
    points = measured.get(name, [])
    if not points or not is_setting(name):
        return [(middle(one), one.mean) for one in thin_out(points)]
    last = max(of_one[-1][0] for of_one in measured.values() if of_one)
    # The value before each change is repeated at the step of the change: the picture shows steps, not slopes.
    held = [(step, value) for (_, value), (step, _) in pairwise([*points, (last, 0.0)])]
    turns = [point for pair in zip_longest(points, held) for point in pair if point is not None]
    return [(middle(one), one.mean) for one in thin_out(turns)]


def band_of(name: str, measured: Mapping[str, Points]) -> Band:
    """Return between which values a metric was around each point of its curve; none if the curve has all points."""
    points = measured.get(name, [])
    if is_setting(name) or len(points) <= MOST_POINTS:
        return []
    return [(middle(one), one.lowest, one.highest) for one in thin_out(points)]


def lineage_of(run: FoundRun) -> Iterator[tuple[str, float, float]]:
    """Yield the runs that a run resumes from, the oldest first, and itself; each with its first and last step."""
    chain = chain_of(run.entry, run.entries)
    # A run counts up to the checkpoint that the next run of the training resumes from.
    lasts = [(entry.get("goes_on_from") or {}).get("step", math.inf) for entry in chain[1:]]
    first = -math.inf
    for entry, last in zip(chain, [*lasts, math.inf], strict=True):
        yield str(entry["id"]), first, last
        # The next run counts from just after that step.
        first = math.nextafter(last, math.inf)


def _name(series: Series) -> str:
    parts = (series.phase, series.datasource if series.stage == EVALUATIONS else "", series.name)
    return "/".join(part for part in parts if part)
