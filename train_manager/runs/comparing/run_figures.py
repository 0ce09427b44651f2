"""The figures of a run: what it has measured, and what the runs that it goes on from had measured before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, zip_longest
from typing import Final

from train_manager.metrics.monitor import mode_of
from train_manager.runs.comparing.compared import Points
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, FILE, Series
from train_manager.runs.record.run_paths import FoundRun, chain_of
from train_manager.telling.errors import InputError

MOST_POINTS: Final = 500  # of a curve
BATCH_SIZE: Final = "batch_size"
SETTINGS: Final = (BATCH_SIZE, "lr")


def points_of(run: FoundRun) -> dict[str, Points]:
    """Return step and value of each figure, as "loss" (of epochs, or of batches if there are none) and "valid/loss".

    Raises:
        InputError: the file of figures cannot be read.
    """
    if not (run.train_dir / FILE).is_file():
        return {}
    reader = MetricReader(run.train_dir)
    found: dict[str, Points] = {}
    for stage in (EPOCHS, EVALUATIONS, BATCHES):
        of_stage: dict[str, Points] = {}
        for id_, first, last in _lineage(run):
            for series, scalars in reader.scalars(stage=stage, run=id_).items():
                points = zip(scalars.steps, scalars.values, strict=True)
                kept = [(step, value) for step, value in points if first <= step <= last]
                of_stage.setdefault(_name(series), []).extend(kept)
        found |= {name: points for name, points in of_stage.items() if points and not found.get(name)}
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


def thinned(points: Points) -> Points:
    """Return a curve that a picture can show: the means of neighbours.

    >>> thinned([(step, 1.0) for step in range(1000)])[:2]
    [(0.5, 1.0), (2.5, 1.0)]
    """
    width = -(-len(points) // MOST_POINTS)
    parts = (points[start : start + width] for start in range(0, len(points), width or 1))
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


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
        return thinned(points)
    last = max(of_one[-1][0] for of_one in figures.values() if of_one)
    held = [(step, value) for (_, value), (step, _) in pairwise([*points, (last, 0.0)])]
    turns = [point for pair in zip_longest(points, held) for point in pair if point is not None]
    return thinned(turns)


def _lineage(run: FoundRun) -> Iterator[tuple[str, float, float]]:
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
