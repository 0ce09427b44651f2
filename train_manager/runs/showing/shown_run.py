"""A run to show, from its folder, which may have metrics only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from train_manager.files.atomic import quote_path
from train_manager.runs.record.metric_schema import FILE
from train_manager.runs.record.run_file import has_runs, outcome_of
from train_manager.runs.record.run_paths import FoundRun, labels_of, named_run, nearby, short_id
from train_manager.telling.errors import InputError


@final
@dataclass(frozen=True)
class ShownRun:
    """A run and its folder."""

    train_dir: Path
    found: FoundRun | None  # its record; None if there is no file of it

    @property
    def has_ended(self) -> bool | None:
        """Whether the run has ended; None if that is not known, because there is no file of it."""
        return None if self.found is None else not outcome_of(self.found.entry).startswith("running")


def names_of(runs: Sequence[ShownRun]) -> list[str]:
    """Return short and different names of runs, for a page and for files."""
    return labels_of([(run.train_dir, short_id(run.found) if run.found else "") for run in runs])


def run_to_show(path: str | os.PathLike[str]) -> ShownRun:
    """Return the run that a path means, as ``compare`` reads it; metrics alone suffice.

    Raises:
        InputError: there is none.
        CheckpointError: its file is damaged.
    """
    folder = Path(path)
    if folder.is_dir() and not has_runs(folder):
        if (folder / FILE).is_file():
            return ShownRun(folder, None)
        if not nearby(folder):
            what = f"{quote_path(folder)} has neither run-<id>.json nor {FILE}, so there is nothing to report"
            cure = "RunRecord and MetricStore, two of the default extensions, write them"
            raise InputError(what, name="run", asked_by="report", cure=cure)
    found = named_run(path)
    return ShownRun(found.train_dir, found)
