"""Steps whose figures a record lacks: those before a process was killed that it had not yet written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, Series
from train_manager.runs.repeating.comparing_figures import Figures
from train_manager.runs.repeating.recorded_figures import changes, is_stepwise

OF_HOOKS: Final = ""  # the stage of their figures
Steps = tuple[int, int]
"""The first and the last of some steps."""


def lost_steps(train_dir: Path, chain: Sequence[Mapping[str, Any]]) -> list[Steps]:
    """Return the steps that each run of a chain has done, and not written, before the next one went on after them."""
    reader, found = MetricReader(train_dir), []
    for entry, after in pairwise(chain):
        until = (after.get("goes_on_from") or {}).get("step") or 0
        rows = reader.scalars(stage=BATCHES, run=entry["id"]).items()
        of_losses = (steps for series, (steps, *_) in rows if is_loss(series.name))
        last = max((step for steps in of_losses for step in steps if step <= until), default=None)
        if last is not None and last < until:
            found.append((last + 1, until))
    return found


def without_steps(figures: Figures, lost: Sequence[Steps]) -> Figures:
    """Return figures without those of batches, and those that hooks have written, at some steps.

    >>> rate = Series("lr", "train_step_batch")
    >>> without_steps({rate: ([1, 3, 5], [0.4, 0.2, 0.1])}, [(3, 4)])[rate]
    ([1, 5], [0.4, 0.1])
    """
    if not lost:
        return figures
    last = max((max(steps) for series, (steps, _) in figures.items() if series.stage == BATCHES), default=0)
    return {
        series: _without(series, *rows, lost, last) if series.stage in (BATCHES, OF_HOOKS) else rows
        for series, rows in figures.items()
    }


def _without(
    series: Series, steps: Sequence[int], values: Sequence[float], lost: Sequence[Steps], last: int
) -> tuple[list[int], list[float]]:
    at, known = np.asarray(steps), np.asarray(values)
    if is_stepwise(series):  # what holds at each step, for a change may be among those that are lost
        every = np.arange(at[0], last + 1)
        at, known = every, known[np.searchsorted(at, every, side="right") - 1]
    kept = np.ones(len(at), bool)
    for begin, end in lost:
        kept &= (at < begin) | (at > end)
    rows = at[kept].tolist(), known[kept].tolist()
    return changes(rows) if is_stepwise(series) else rows
