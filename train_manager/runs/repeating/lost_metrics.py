"""Steps whose metrics a record lacks: a process was killed before it had written them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, Series
from train_manager.runs.repeating.comparing_metrics import MetricValues
from train_manager.runs.repeating.recorded_metrics import changes, is_stepwise

OF_HOOKS: Final = ""  # the stage of metrics that hooks write
Steps = tuple[int, int]
"""The first and the last of some steps."""


def lost_steps(train_dir: Path, chain: Sequence[Mapping[str, Any]]) -> list[Steps]:
    """Return the steps that each run of a chain has done, and not written, before the next one continued after them."""
    reader, found = MetricReader(train_dir), []
    for entry, after in pairwise(chain):
        until = (after.get("goes_on_from") or {}).get("step") or 0
        rows = reader.scalars(stage=BATCHES, run=entry["id"])
        of_losses = (steps for series, (steps, *_) in rows.items() if is_loss(series.name))
        # A run without any rows was killed in its first second; one with rows, but no losses, has none to lose.
        begin = until if rows else (entry.get("goes_on_from") or {}).get("step") or 0
        last = max((step for steps in of_losses for step in steps if step <= until), default=begin)
        if last < until:
            found.append((last + 1, until))
    return found


def without_steps(metrics: MetricValues, lost: Sequence[Steps]) -> MetricValues:
    """Return metrics without the values of batches and hooks at some steps.

    >>> rate = Series("lr", "train_step_batch")
    >>> without_steps({rate: ([1, 3, 5], [0.4, 0.2, 0.1])}, [(3, 4)])[rate]
    ([1, 5], [0.4, 0.1])
    """
    if not lost:
        return metrics
    last = max((max(steps) for series, (steps, _) in metrics.items() if series.stage == BATCHES), default=0)
    return {
        series: _without(series, *rows, lost, last) if series.stage in (BATCHES, OF_HOOKS) else rows
        for series, rows in metrics.items()
    }


def _without(
    series: Series, steps: Sequence[int], values: Sequence[float], lost: Sequence[Steps], last: int
) -> tuple[list[int], list[float]]:
    at, known = np.asarray(steps), np.asarray(values)
    # The store has only the changes of a learning rate. It is spread over all steps first: if a change is among the
    # lost steps, the new value must still be known at the step after them.
    if is_stepwise(series):
        every = np.arange(at[0], last + 1)
        at, known = every, known[np.searchsorted(at, every, side="right") - 1]
    kept = np.ones(len(at), bool)
    for begin, end in lost:
        kept &= (at < begin) | (at > end)
    rows = at[kept].tolist(), known[kept].tolist()
    return changes(rows) if is_stepwise(series) else rows
