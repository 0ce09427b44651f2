"""What another tool shows of a run beside its metrics: its parameters, and how it has ended, in words of MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from train_manager.rebuilding.recorded import parameters_of
from train_manager.runs.record.made_objects import made_objects, parameter_rows_of, unrecorded_objects
from train_manager.runs.record.processes import is_gone
from train_manager.runs.record.run_file import outcome, read_runs
from train_manager.telling.errors import TrainManagerError

STATUS: Final = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
KILLED: Final = ("SIGINT", "SIGTERM", "SIGUSR1", "KeyboardInterrupt", "SystemExit")
"""How the reason of a run begins that was stopped from outside."""


class RunNotes(NamedTuple):
    """Notes on a run.

    Attributes:
        status: "RUNNING", "FINISHED", "FAILED", or "KILLED".
        parameters: what its objects were made with, by their dotted paths.
    """

    status: str
    parameters: Mapping[str, str]


def parameters_in_words(train_manager: Any) -> Mapping[str, str]:
    """Return what the objects of a manager were made with, by their dotted paths."""
    with suppress(Exception):  # an optimizer of one's own may raise anything, and must not end the run
        recorded = parameters_of(train_manager)
        made = unrecorded_objects(made_objects(train_manager), recorded)
        return parameter_rows_of({"parameters": recorded, "made": made})
    return {}


def status_after(error: BaseException | None, stop_reason: str | None) -> str:
    """Return the status of a run that has ended.

    >>> status_after(ValueError(), None), status_after(None, "SIGTERM"), status_after(None, "EarlyStopping: ...")
    ('FAILED', 'KILLED', 'FINISHED')
    """
    return _status({**outcome(error, stop_reason), "process": {}})


def read_notes(train_dir: Path) -> dict[str, RunNotes]:
    """Return notes on the runs in a folder, by their ids; none if they cannot be read."""
    try:
        return {entry["id"]: RunNotes(_status(entry), parameter_rows_of(entry)) for entry in read_runs(train_dir)}
    except TrainManagerError:
        return {}


def _status(entry: Mapping[str, Any]) -> str:
    if entry["outcome"] == "running":
        return "KILLED" if is_gone(entry["process"]) else "RUNNING"
    return "KILLED" if str(entry.get("reason")).startswith(KILLED) else STATUS[entry["outcome"]]
