"""A run in a line: when it began, how it ended, and what it came to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, final

from train_manager.metrics.history_rows import last_metrics, metrics_of
from train_manager.metrics.monitor import mode_of
from train_manager.reporting.values import plural
from train_manager.runs.code.record import changed_files, read_code_record
from train_manager.runs.record.made_objects import parameter_rows_of
from train_manager.runs.record.run_file import first_line, outcome_of, run_file, runs_and_problems
from train_manager.runs.record.run_paths import FoundRun, folders_with_runs, has_trained
from train_manager.runs.record.trained_parts import TrainedParts, part_facts
from train_manager.runs.store.reader import MetricReader
from train_manager.telling.errors import CheckpointError, InputError, TrainManagerError
from train_manager.validation import is_number

MALFORMED: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of code that reads a value of a wrong type, from a file that was edited or written by others."""


@final
@dataclass(frozen=True)
class Best:
    """The best value of the metric that a run monitors, or else of its first one."""

    metric: str  # the evaluation set and the name: "valid/accuracy"
    value: float
    epoch: int  # number of completed epochs at the best evaluation
    step: int
    mode: str  # "min" or "max", the side on which it is better
    by: str  # the extension that monitors it; empty if none does


@final
@dataclass(frozen=True)
class RunSummary:
    """A run in a line.

    Attributes:
        label: its folder, with the beginning of its run_id if there are several runs in it.
        train_dir: its folder.
        id: its run_id.
        began: in the time zone that was recorded.
        seconds: how long it took; of one that is running, until now; of one that was killed, until its last metric in
            the store, None without a store.
        outcome: in words.
        epochs: how many it has completed.
        steps: how many.
        metrics: the last metrics.
        commit: seven digits of it, and a "+" if files differed from it; empty if it is not known.
        best: None if no evaluation is stored, or if the metric's name does not tell which value is better.
        trained: whether it has taken a step, or may have: it has not ended.
        parameters: the recorded constructor parameters, by their dotted paths.
        trains: the size of the model, the optimizers with their rates, and the monitored metric; see ``trained_parts``.
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
    best: Best | None = None
    trained: bool = True
    parameters: Mapping[str, str] = field(default_factory=dict)
    trains: TrainedParts = field(default_factory=dict)

    @property
    def began_in_minutes(self) -> str:
        """When it began, in the time zone of this machine."""
        return self.began.astimezone().strftime("%Y-%m-%d %H:%M")

    @property
    def done(self) -> str:
        """How far it came, as "3 epochs, 120 steps"; empty if nothing is recorded."""
        counts = ("epoch", self.epochs), ("step", self.steps)
        return ", ".join(plural(count, noun) for noun, count in counts if count is not None)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "train_dir": str(self.train_dir), "began": self.began.isoformat()}


def summaries_below(folder: Path) -> tuple[list[RunSummary], dict[Path, str]]:
    """Return the runs below a folder, the newest first; and the files of runs that cannot be read, and why."""
    found: list[RunSummary] = []
    problems: dict[Path, str] = {}
    for train_dir in folders_with_runs(folder):
        entries, errors = runs_and_problems(train_dir)
        problems |= {path: first_line(error) for path, error in errors.items()}
        for entry in entries:
            try:
                found.append(summary_of(FoundRun(train_dir, entry, tuple(entries))))
            except (TrainManagerError, OSError) as error:  # of its other files
                problems[run_file(train_dir, entry["id"])] = first_line(error)
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
        seconds=_seconds(run, began),
        outcome=outcome_of(run.entry),
        epochs=progress.get("epochs"),
        steps=progress.get("steps"),
        metrics={name: value for name, value in metrics.items() if is_number(value)},
        commit=commit_of(run),
        best=_best_of(run),
        trained=has_trained(run.entry),
        parameters=_parameters_of(run),
        trains=_trains_of(run),
    )


def _parameters_of(run: FoundRun) -> Mapping[str, str]:
    """Return the recorded parameters; none if they are damaged."""
    try:
        return parameter_rows_of(run.entry)
    except (TrainManagerError, *MALFORMED):
        return {}


def _trains_of(run: FoundRun) -> TrainedParts:
    """Return what was trained; nothing if it is damaged."""
    parts: TrainedParts = run.entry.get("trains") or {}
    try:
        return parts if [*part_facts(parts)] else {}
    except MALFORMED:
        return {}


def commit_of(run: FoundRun) -> str:
    """Return seven digits of the commit, with a "+" if files differed from it; nothing if it is not known."""
    try:
        record = read_code_record(run.train_dir, run.id) or {}
        whole: dict[str, Any] = next((item for item in record.get("repositories", ()) if not item.get("inside")), {})
        return f"{whole['commit']:.7}{'+' if any(changed_files(whole)) else ''}" if whole.get("commit") else ""
    except (TrainManagerError, OSError, *MALFORMED):
        return "damaged"


def _come_to(run: FoundRun) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return progress and last metrics of a run."""
    # The entry of a killed run, or of one that is running, is older than its metrics.sqlite.
    recorded = run.entry.get("progress") or {}, run.entry.get("metrics") or {}
    if run.entry.get("ended"):
        return recorded
    try:
        reader = MetricReader(run.train_dir)
        history, steps = reader.history(run.id), reader.last_step(run.id)
    except InputError:
        return recorded
    epochs = [row for row in history["epochs"] if not row.get("partial")]
    metrics = last_metrics(history["epochs"], history["evaluations"])
    steps = max(steps, _saved_steps(run))
    return {"epochs": epochs[-1]["epoch"] if epochs else 0, "steps": steps}, metrics


def _saved_steps(run: FoundRun) -> int:
    """Return the step of the newest checkpoint if the run has written it, else 0."""
    # Imported for a killed run only: these modules import numpy, which slows the list of runs.
    from train_manager.checkpoints.checkpoint_names import named_checkpoints, step_of
    from train_manager.checkpoints.manifest import run_of

    # A process that is killed loses the last metrics, which wait for a write; a checkpoint is written at once.
    try:
        *_, newest = named_checkpoints(run.train_dir)
    except (CheckpointError, OSError):
        return 0
    return step_of(newest) if run_of(newest) == run.id else 0


def _best_of(run: FoundRun) -> Best | None:
    """Return the best value in the store, also of the runs that a run resumes from."""
    try:
        rows = MetricReader(run.train_dir).history(run.id)["evaluations"]
    except InputError:
        return None
    metric, mode, by = _monitor_of(run.entry)
    values = [
        (f"{row['set']}/{name}", value, row)
        for row in rows
        # As Checkpoints and EarlyStopping do: an evaluation of the untrained model is none of the best.
        if not row.get("standalone") and row["step"]
        for name, value in metrics_of(row).items()
        if is_number(value) and math.isfinite(value)
    ]
    metric = metric or (values[0][0] if values else "")
    try:
        mode = mode_of(metric, mode, "runs")
    except InputError:
        return None
    best = max if mode == "max" else min
    found = best((one for one in values if one[0] == metric), key=lambda one: one[1], default=None)
    return found and Best(metric, found[1], found[2]["epoch"], found[2]["step"], mode, by)


def _monitor_of(entry: Mapping[str, Any]) -> tuple[str | None, str | None, str]:
    """Return metric, mode and name of the extension that decides which evaluation is best."""
    try:
        if found := (entry.get("trains") or {}).get("monitor"):
            return found["metric"], str(found["mode"]), str(found["by"])
        # An extension that keeps no weights, such as Log, may have been given a metric all the same.
        extensions = entry["parameters"]["arguments"]["extensions"].values()
        made = [(one["$object"].rpartition(":")[2], one.get("arguments") or {}) for one in extensions]
        return next((of["monitor"], of.get("mode"), by) for by, of in made if isinstance(of.get("monitor"), str))
    except (StopIteration, *MALFORMED):
        return None, None, ""


def _seconds(run: FoundRun, began: datetime) -> float | None:
    if run.entry.get("ended"):
        return (datetime.fromisoformat(run.entry["ended"]) - began) / timedelta(seconds=1)
    if outcome_of(run.entry) == "running":
        return (datetime.now(began.tzinfo) - began) / timedelta(seconds=1)
    try:
        last = MetricReader(run.train_dir).last_time(run.id)
    except InputError:
        return None
    return None if last is None else last - began.timestamp()
