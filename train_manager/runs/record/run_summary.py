"""A run in a line: when it began, how it ended, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.json_shape import wrong_in
from train_manager.metrics.history_rows import last_figures
from train_manager.runs.code.recorded_files import changed_files, read_code_record
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.run_file import ENTRY, RUN_FILE, outcome_of, read_runs
from train_manager.runs.record.run_paths import FoundRun, folders_with_runs
from train_manager.telling.errors import InputError, TrainManagerError

MALFORMED: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading raises where a file, written by hand or by others, has the wrong type at some place."""


@final
@dataclass(frozen=True)
class RunSummary:
    """A run in a line.

    Attributes:
        label: its folder, with the beginning of its run_id if there are several runs in it.
        train_dir: its folder.
        id: its run_id.
        began: in the time zone that was recorded.
        seconds: how long it took; of one that is running, until now; None if its end is not known.
        outcome: in words.
        epochs: how many it has completed.
        steps: how many.
        metrics: the last figures.
        commit: seven digits of it, and a "+" if files differed from it; empty if it is not known.
    """

    label: str
    train_dir: Path
    id: str
    began: datetime
    seconds: float | None
    outcome: str
    epochs: int | None
    steps: int | None
    metrics: Mapping[str, float]
    commit: str

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "train_dir": str(self.train_dir), "began": self.began.isoformat()}


def summaries_below(folder: Path) -> tuple[list[RunSummary], dict[Path, str]]:
    """Return the runs below a folder, the newest first; and the folders whose ``run.json`` cannot be read, and why."""
    found: list[RunSummary] = []
    problems: dict[Path, str] = {}
    for train_dir in folders_with_runs(folder):
        try:
            entries = tuple(read_runs(train_dir))
            if wrong := next(filter(None, (wrong_in(one, ENTRY) for one in entries)), None):
                problems[train_dir] = f"{train_dir / RUN_FILE} is damaged: it has {wrong}"
                continue
            found += [summary_of(FoundRun(train_dir, entry, entries)) for entry in entries]
        except (TrainManagerError, OSError) as error:
            problems[train_dir] = str(error).partition("\n")[0]
    found.sort(key=lambda summary: summary.began.timestamp(), reverse=True)
    return found, problems


def summary_of(run: FoundRun) -> RunSummary:
    """Return a run in a line."""
    progress, metrics = _come_to(run)
    began = datetime.fromisoformat(run.entry["began"])
    return RunSummary(
        label=run.label,
        train_dir=run.train_dir,
        id=run.id,
        began=began,
        seconds=_seconds(run.entry, began),
        outcome=outcome_of(run.entry),
        epochs=progress.get("epochs"),
        steps=progress.get("steps"),
        metrics={name: value for name, value in metrics.items() if _is_number(value)},
        commit=commit_of(run),
    )


def commit_of(run: FoundRun) -> str:
    """Return seven digits of the commit, with a "+" if files differed from it; nothing if it is not known."""
    try:
        record = read_code_record(run.train_dir, run.id) or {}
        whole: dict[str, Any] = next((item for item in record.get("repositories", ()) if not item.get("inside")), {})
        return f"{whole['commit']:.7}{'+' if any(changed_files(whole)) else ''}" if whole.get("commit") else ""
    except (TrainManagerError, OSError, *MALFORMED):
        return "damaged"


def _come_to(run: FoundRun) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return progress and last figures: of a run whose entry was not closed, those in its store."""
    recorded = run.entry.get("progress") or {}, run.entry.get("metrics") or {}
    if run.entry.get("ended"):
        return recorded
    try:
        reader = MetricReader(run.train_dir)
        history, steps = reader.history(run.id), reader.last_step(run.id)
    except InputError:
        return recorded
    epochs = [row for row in history["epochs"] if not row.get("partial")]
    figures = last_figures(history["epochs"], history["evaluations"])
    return {"epochs": epochs[-1]["epoch"] if epochs else 0, "steps": steps}, figures


def _seconds(entry: Mapping[str, Any], began: datetime) -> float | None:
    if entry.get("ended"):
        return (datetime.fromisoformat(entry["ended"]) - began) / timedelta(seconds=1)
    return (datetime.now(began.tzinfo) - began) / timedelta(seconds=1) if outcome_of(entry) == "running" else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
