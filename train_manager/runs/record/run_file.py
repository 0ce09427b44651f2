"""``run-<id>.json``: what a run was, a file for each TrainManager that ran in a ``train_dir``.

Reading needs no torch. Only the process of a run writes its file, and replaces it as a whole: a reader finds the old
one or the new one, and processes that share a folder need no lock.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

from train_manager.core.outcome import Skip
from train_manager.core.stage import stage_of
from train_manager.files.atomic import replace_file
from train_manager.files.json_text import json_of
from train_manager.files.secrets import redacted
from train_manager.runs.record.processes import is_gone, is_of_this_machine
from train_manager.telling.errors import CheckpointError, InputError, TrainManagerError
from train_manager.telling.source_locations import users_level

NAME: Final = re.compile(r"run-[\w-]+\.json", re.ASCII)
SCHEMA: Final = "train-manager/run"
VERSION: Final = 1
LONGEST: Final = 4000  # characters of an error's message
SECONDS: Final = 1.0  # between two writes of the file of a run that is called batch by batch

Entry = dict[str, Any]
"""The record of one TrainManager in one process, as JSON can hold it."""


# ---- reading ---------------------------------------------------------------------------------------------------------


def run_file(train_dir: Path | str, run_id: str) -> Path:
    """Return the path of the file of a run."""
    return Path(train_dir) / f"run-{run_id}.json"


def is_run_file(path: Path) -> bool:
    """Return whether a file is that of a run by its name."""
    return NAME.fullmatch(path.name) is not None


def has_runs(folder: Path) -> bool:
    """Return whether a folder has files of runs."""
    return any(map(is_run_file, folder.glob("run-*.json")))


def read_runs(train_dir: Path | str) -> list[Entry]:
    """Return the entries of a ``train_dir``, the oldest first; a file that cannot be read is left out with a warning.

    >>> import tempfile
    >>> from train_manager.extensions.reproducibility.run_record import RunRecord
    >>> from train_manager.testing import tiny_manager
    >>> train_dir = tempfile.mkdtemp()
    >>> result = tiny_manager(RunRecord(), train_dir=train_dir).train()
    >>> [(entry["outcome"], entry["progress"]["steps"]) for entry in read_runs(train_dir)]
    [('completed', 3)]

    Raises:
        InputError: no run was recorded there; or none of its files can be read, and the first was written by a newer
            train_manager or by another program.
        CheckpointError: none of its files can be read, and the first is damaged.
    """
    entries, problems = runs_and_problems(train_dir)
    if not entries:
        cure = "RunRecord, one of the default extensions, writes one as a run opens"
        none = InputError(f"no run was recorded in {train_dir}: it has no file run-<id>.json", name="run", cure=cure)
        raise next(iter(problems.values()), none)
    for error in problems.values():
        warnings.warn(f"left out: {first_line(error)}", RuntimeWarning, stacklevel=users_level())
    return entries


def runs_and_problems(train_dir: Path | str) -> tuple[list[Entry], dict[Path, Exception]]:
    """Return the entries of a ``train_dir``, the oldest first, and the errors of the files that cannot be read."""
    entries: list[Entry] = []
    problems: dict[Path, Exception] = {}
    for path in sorted(filter(is_run_file, Path(train_dir).glob("run-*.json"))):
        try:
            entries.append(read_entry(path))
        except (TrainManagerError, OSError) as error:
            problems[path] = error
    return sorted(entries, key=lambda one: (datetime.fromisoformat(one["began"]), one["id"])), problems


def read_entry(path: Path) -> Entry:
    """Return the entry in a file.

    Raises:
        InputError: it was written by a newer train_manager or by another program.
        CheckpointError: it is damaged; the error names the key.
    """
    found = json_of(path.read_bytes(), str(path))
    if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA or type(found.get("version")) is not int:
        cure = "give a train_dir that no other program writes to, or rename that file"
        raise InputError(f"{path} is not a file of train_manager", name=path.name, cure=cure)
    if (version := found.pop("version")) > VERSION:
        what = f"{path} was written by a newer train_manager (version {version}); this one reads {VERSION}"
        raise InputError(what, name=path.name, cure="update train_manager, or give another train_dir")
    if (wrong := _wrong_in(found, path)) is not None:
        raise CheckpointError(f"{path} is damaged: it has {wrong}", name=str(path))
    return {**found, "metrics": _numbers(found.get("metrics") or {})}


def first_line(error: Exception) -> str:
    """Return an error without its cures."""
    return str(error).partition("\n")[0]


def _as_json(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics with nan and infinity as ``{"float": "nan"}``, because JSON lacks them."""
    return {
        name: {"float": repr(float(one))} if isinstance(one, float) and not math.isfinite(one) else one
        for name, one in metrics.items()
    }


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics with nan and infinity, as ``_as_json`` writes them."""
    return {
        name: float(one["float"]) if isinstance(one, dict) and "float" in one else one for name, one in metrics.items()
    }


# ---- the types of its values -----------------------------------------------------------------------------------------


REQUIRED: Final = {"id": str, "began": datetime, "outcome": str, "process": dict}
KEYS: Final[Mapping[str, type]] = {
    **REQUIRED,
    "ended": datetime,
    **dict.fromkeys(("reason", "train_dir"), str),
    **dict.fromkeys(("error", "goes_on_from", "calls", "command", "environment", "parameters", "made", "trains"), dict),
    **dict.fromkeys(("data", "progress", "metrics"), dict),
    **dict.fromkeys(("findings", "problems"), list),
    "manager": int,
}
"""The types of the values that readers compute with."""
_IN_WORDS: Final = {
    **{str: "a text", int: "a whole number", list: "a list", dict: "an object"},
    datetime: "a time with its zone",
}


def _wrong_in(entry: Entry, path: Path) -> str | None:
    """Return the first value of a wrong type, and its key; None if there is none."""
    if path.name != f"run-{entry.get('id')}.json":
        return f"{entry.get('id')!r:.60} at id, where the run of its name belongs"
    for key, kind in KEYS.items():
        value = entry.get(key)
        if (key in REQUIRED) if value is None else not _is_a(kind, value):
            return f"{'nothing' if value is None else f'{value!r:.60}'} at {key}, where {_IN_WORDS[kind]} belongs"
    return None


def _is_a(kind: type, value: Any) -> bool:
    if kind is not datetime:
        return isinstance(value, kind)
    try:
        # A time without its zone would mean another moment on another machine.
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


# ---- how a run has ended ---------------------------------------------------------------------------------------------


def outcome_of(entry: Mapping[str, Any]) -> str:
    """Return in words how a run ended, or that it has not.

    >>> entry = {"outcome": "failed", "error": {"type": "ValueError", "message": "no\\nroom", "stage": "run > train"}}
    >>> outcome_of(entry)
    'failed: ValueError: no (at run > train)'
    """
    if entry["outcome"] == "running":
        return _of_open(entry)
    error = entry.get("error") or {}
    if entry["outcome"] == "failed" and error:
        place = f" (at {error['stage']})" if error.get("stage") else ""
        lines = str(error.get("message", "")).strip().splitlines()
        said = f": {lines[0]}" if lines else ""
        return f"failed: {error.get('type')}{said}{place}"
    return f"{entry['outcome']}: {entry['reason']}" if entry.get("reason") else str(entry["outcome"])


def _of_open(entry: Mapping[str, Any]) -> str:
    process = entry["process"]
    if is_gone(process):
        return f"ended without a word (process {process.get('pid')} is gone)"
    if is_of_this_machine(process):
        return "running"
    return f"running, or ended without a word (process {process.get('pid')} on host {process.get('host')})"


def outcome(error: BaseException | None, stop_reason: str | None) -> dict[str, Any]:
    """Return how a run has ended, as its entry holds it: completed, stopped or failed, and why.

    >>> outcome(None, None)["outcome"], outcome(KeyboardInterrupt(), None)["reason"]
    ('completed', 'KeyboardInterrupt')

    Args:
        error: what came out of it; None if nothing did.
        stop_reason: what ``tm.stop`` was given; a signal gives its name.
    """
    found: dict[str, Any] = {"outcome": "completed", "reason": None, "error": None}
    if isinstance(error, Exception) and not isinstance(error, Skip):
        return found | {"outcome": "failed", "error": _describe(error)}
    reason = stop_reason or (None if error is None else _interruption(error))
    return found if reason is None else found | {"outcome": "stopped", "reason": redacted(reason)}


def _interruption(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit({error.code!r:.60})"
    if isinstance(error, Skip):
        return "a hook has skipped the run"
    return "the run was left" if isinstance(error, GeneratorExit) else type(error).__name__


def _describe(error: Exception) -> dict[str, Any]:
    kind = type(error)
    return {
        "type": kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": redacted(str(error)[:LONGEST]),
        "stage": stage_of(error),
    }


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_entry(train_dir: Path | str, entry: Entry) -> None:
    """Write the file of a run, or replace it. One that is damaged, newer or another program's stays as it is.

    Raises:
        InputError: the file was written by a newer train_manager, or by another program.
        CheckpointError: it is damaged.
        OSError: it cannot be read or written.
    """
    path = run_file(train_dir, entry["id"])
    if path.exists():
        read_entry(path)
    content = {"schema": SCHEMA, "version": VERSION, **entry, "metrics": _as_json(entry.get("metrics") or {})}
    # A line for each key. `json.dumps(indent=...)` takes forty times as long: it does not use the encoder in C.
    lines = [f"{json.dumps(key)}: {json.dumps(value, default=str)}" for key, value in content.items()]
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode(), sync=True)


@final
class RunWriter:
    """Replaces the file of a run of this process.

    A failure to write does not end a run: it is warned of once. A forked child, such as a worker of a loader, writes
    nothing: the run is its parent's.

    Args:
        train_dir: the folder.
        run_id: of the run.
    """

    def __init__(self, train_dir: Path, run_id: str) -> None:
        self.train_dir = train_dir.absolute()  # the program may call os.chdir later
        self.path = run_file(self.train_dir, run_id)
        self._pid = os.getpid()
        self._written = -SECONDS  # when it was written last
        self._has_failed = False

    @property
    def is_recent(self) -> bool:
        """Whether the file was written within the last second."""
        return time.monotonic() - self._written < SECONDS

    def write(self, entry: Entry) -> None:
        """Write the entry."""
        if os.getpid() != self._pid:
            return
        try:
            write_entry(self.train_dir, entry)
        except TrainManagerError as error:
            self._warn(first_line(error))
        except OSError as error:
            self._warn(f"{type(error).__name__}: {error}")
        self._written = time.monotonic()

    def _warn(self, why: str) -> None:
        if not self._has_failed:
            what = f"the record of this run is not in {self.path}, or not up to date: {why}"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())
        self._has_failed = True
