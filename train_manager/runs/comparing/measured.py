"""What a run has measured, from its store: curves, and the last and the best values."""

from __future__ import annotations

import sqlite3
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.metrics.monitor import mode_of
from train_manager.runs.store.curves import Curve, SmallBatches, curves_of, small_batches
from train_manager.runs.store.reader import MetricReader, open_to_read
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, EPOCHS, EVALUATIONS, FILE, RANKS, Series, is_empty
from train_manager.telling.errors import InputError

SETTINGS: Final = (BATCH_SIZE, RANKS, "lr")


@final
class Measured:
    """The metrics of a run and of the runs that it resumes from, read as they are first asked for.

    Args:
        train_dir: the folder of the run.
        run: its run_id; None for what counts now.
    """

    def __init__(self, train_dir: Path, run: str | None) -> None:
        self._train_dir, self.run = train_dir, run

    @cached_property
    def reader(self) -> MetricReader | None:
        """What reads the store; None if there is none, or nothing in it yet."""
        path = self._train_dir / FILE
        return MetricReader(path) if path.is_file() and _has_tables(path) else None

    @cached_property
    def curves(self) -> dict[Series, Curve]:
        """Each series, as short as a picture needs it.

        Raises:
            InputError: the store cannot be read, here and below.
        """
        return curves_of(self.reader, self.run) if self.reader is not None else {}

    @cached_property
    def metrics(self) -> dict[str, Curve]:
        """Each metric: that of epochs with all values, such as "loss"; "batch_loss" without one; and "valid/loss"."""
        if self.reader is None:
            return {}
        whole = (curves_of(self.reader, self.run, sys.maxsize, stage=stage) for stage in (EPOCHS, EVALUATIONS))
        of_batches = {series: curve for series, curve in self.curves.items() if series.stage == BATCHES}
        found: dict[str, Curve] = {}
        for curves in (*whole, of_batches):
            for series, curve in curves.items():
                # A training that has not come to the end of an epoch has no other loss than that of its batches.
                is_new = curves is of_batches and is_loss(series.name) and name_of(series) not in found
                found.setdefault(name_of(series._replace(name=f"batch_{series.name}") if is_new else series), curve)
        return found

    # ---- the axes of pictures ------------------------------------------------------------------------------------

    @cached_property
    def last(self) -> float:
        """The last step of the curves of batches, epochs and evaluations; hooks may give steps of their own."""
        return max((float(curve.steps[-1]) for series, curve in self.curves.items() if series.stage), default=0.0)

    @property
    def sizes(self) -> list[tuple[float, float]]:
        """The steps at which the batch size changes, and the size from there on."""
        sizes = [curve for series, curve in self.curves.items() if (series.name, series.stage) == (BATCH_SIZE, BATCHES)]
        return sorted(pair for curve in sizes for pair in zip(curve.steps.tolist(), curve.mean.tolist(), strict=True))

    @property
    def small(self) -> SmallBatches:
        """The batches that are joined to the batch before."""
        steps, sizes = np.array(self.sizes).reshape(-1, 2).T
        return small_batches(steps, sizes)

    @property
    def has_ranks(self) -> bool:
        """Whether several processes have trained together, so that the losses of batches are of rank 0's rows."""
        return any((series.name, series.stage) == (RANKS, BATCHES) for series in self.curves)

    @property
    def times(self) -> list[tuple[float, float]]:
        """Steps and their seconds since 1970, of the series that has most steps."""
        of = max(self.curves.values(), key=lambda curve: len(curve.steps), default=None)
        return [] if of is None else list(zip(of.steps.tolist(), of.times.tolist(), strict=True))

    @cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """The rows of epochs of ``tm.history``."""
        return self.reader.history(self.run)["epochs"] if self.reader is not None else []

    @cached_property
    def pauses(self) -> list[tuple[float, float]]:
        """The last step before each part that resumes another one, and when that part began."""
        parts = {part.id: part for part in (self.reader.runs() if self.reader is not None else ())}
        own = [part for part in parts.values() if self.run in (None, part.run)]
        found, part = list[tuple[float, float]](), own[-1] if own else None
        while part is not None:
            if part.step is not None:
                found.insert(0, (part.step, part.began))
            part = parts.get(part.resumes) if part.resumes is not None else None
        return found


def _has_tables(path: Path) -> bool:
    try:
        with open_to_read(path) as connection:
            return not is_empty(connection)
    except sqlite3.DatabaseError:
        return True  # the reader, which opens the file next, reports the fault


def name_of(series: Series) -> str:
    """Return the name of a series, after its phase and the set that it is evaluated on.

    >>> name_of(Series("loss", "eval", "valid", "warm up")), name_of(Series("loss", "train_step_batch", "train"))
    ('warm up/valid/loss', 'loss')
    """
    parts = (series.phase, series.datasource if series.stage == EVALUATIONS else "", series.name)
    return "/".join(part for part in parts if part)


def is_setting(name: str, *names: str) -> bool:
    """Return whether a metric is stored where it changes, and holds until then.

    >>> is_setting("lr/generator"), is_setting("warm up/batch_size"), is_setting("loss")
    (True, True, False)
    """
    return not {*name.split("/")}.isdisjoint(names or SETTINGS)


def best_of(name: str, curve: Curve) -> tuple[float, float] | None:
    """Return step and value of the best value; None if the name does not tell which is better, or none is a number."""
    try:
        # Neither "min" nor "max" is known for this name: it has no best value.
        values = curve.mean if mode_of(name, None, "compare_runs") == "min" else -curve.mean
    except InputError:
        return None
    finite = np.where(np.isfinite(values), values, np.inf)
    at = int(finite.argmin())
    return (float(curve.steps[at]), float(curve.mean[at])) if np.isfinite(finite[at]) else None
