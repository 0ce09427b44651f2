"""``run.json``: an entry for each TrainManager that ran in a ``train_dir``, the oldest first.

Reading needs no torch. Writing replaces the whole file, so that a reader finds the old one or the new one. Several
processes may write: each reads the file anew and replaces its own entry, under a lock of milliseconds. The lock of
``files/lock.py`` is another one: it is held through a training, and an evaluation beside it is recorded all the same.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from train_manager.files.atomic import free_path, replace_file
from train_manager.files.json_shape import LIST, NUMBER, OBJECT, OBJECT_OF_TEXTS, TEXT, TEXTS, TIME, Kind, Shape
from train_manager.files.strict_json import strict_json
from train_manager.runs.record.processes import is_gone, is_of_this_machine
from train_manager.telling.errors import CheckpointError, InputError
from train_manager.telling.source_locations import users_level

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

RUN_FILE: Final = "run.json"
SCHEMA: Final = "train-manager/run"
VERSION: Final = 1
OUTCOMES: Final = ("running", "completed", "stopped", "failed")
PATIENCE: Final = 10.0  # seconds that a writer waits for another writer, which needs milliseconds
ENTRY_HAS: Final = {"id": str, "began": str, "outcome": str, "process": dict}
"""The keys without which an entry counts as damaged."""

ENTRY: Final[Shape] = {
    "id": Kind("a name", lambda value: isinstance(value, str) and re.fullmatch(r"[\w-]+", value, re.ASCII) is not None),
    **dict.fromkeys(("began", "ended"), TIME),
    **dict.fromkeys(("process", "error", "goes_on_from", "calls", "command", "environment", "parameters"), OBJECT),
    **dict.fromkeys(("made", "data", "data.eval_data", "progress"), OBJECT),
    "findings": LIST,
    **dict.fromkeys(("manager", "goes_on_from.step", "progress.steps", "progress.epochs"), NUMBER),
    **dict.fromkeys(("reason", "goes_on_from.run", "command.kind", "command.folder", "command.interpreter"), TEXT),
    **dict.fromkeys(("command.arguments", "command.search_path", "problems"), TEXTS),
    **dict.fromkeys(("environment.variables", "environment.editable"), OBJECT_OF_TEXTS),
    **dict.fromkeys(("environment.threads", "environment.devices", "environment.packages"), OBJECT),
}
"""The types of the values that readers compute with; other values are only shown."""

Entry = dict[str, Any]
"""The record of one TrainManager in one process, as JSON can hold it."""


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_runs(train_dir: Path | str) -> list[Entry]:
    """Return the entries of a ``train_dir``, the oldest first.

    >>> import tempfile
    >>> from train_manager.extensions.reproducibility.run_record import RunRecord
    >>> from train_manager.testing import tiny_manager
    >>> train_dir = tempfile.mkdtemp()
    >>> result = tiny_manager(RunRecord(), train_dir=train_dir).train()
    >>> [(entry["outcome"], entry["progress"]["steps"]) for entry in read_runs(train_dir)]
    [('completed', 3)]

    Raises:
        InputError: there is no ``run.json``, or it was written by a newer train_manager, or by another program.
        CheckpointError: it is damaged.
    """
    path = Path(train_dir) / RUN_FILE
    try:
        return _with_numbers(entries_in(strict_json(path.read_bytes(), str(path)), str(path)))
    except (FileNotFoundError, NotADirectoryError):
        cure = "RunRecord, one of the default extensions, writes it as a run opens"
        raise InputError(f"there is no {path}, so no run was recorded there", name=RUN_FILE, cure=cure) from None


def entries_in(found: Any, path: str) -> list[Entry]:
    """Return the entries of a file.

    Args:
        found: the content of the file.
        path: its path, for errors.

    Raises:
        InputError: it was written by a newer train_manager, or by another program.
        CheckpointError: it is damaged.
    """
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or type(found.get("version")) is not int:
        cure = "give a train_dir that no other program writes to, or rename that file"
        raise InputError(f"{path} is not a file of train_manager", name=RUN_FILE, cure=cure)
    if found["version"] > VERSION:
        what = f"{path} was written by a newer train_manager (version {found['version']}); this one reads {VERSION}"
        raise InputError(what, name=RUN_FILE, cure="update train_manager, or give another train_dir")
    runs = found.get("runs")
    if not isinstance(runs, list):
        raise CheckpointError(f"{path} is damaged: it has no list of runs", name=path)
    for number, entry in enumerate(runs, start=1):
        _require_entry(entry, number, path)
    return runs


def _with_numbers(runs: list[Entry]) -> list[Entry]:
    return [{**entry, "metrics": _numbers(entry.get("metrics", {}))} for entry in runs]


def _require_entry(entry: Any, number: int, path: str) -> None:
    is_whole = isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in ENTRY_HAS.items())
    if not is_whole or entry["outcome"] not in OUTCOMES:
        raise CheckpointError(f"{path} is damaged: entry {number} is not one of a run", name=path)


def _numbers(metrics: Any) -> Any:
    """Return metrics with nan and infinity, which are written as ``{"float": "nan"}`` because JSON lacks them."""
    if not isinstance(metrics, dict):
        return {}
    return {
        name: float(one["float"]) if isinstance(one, dict) and "float" in one else one for name, one in metrics.items()
    }


def is_alive(entry: Mapping[str, Any]) -> bool:
    """Return whether the process of a run may be alive: False only if it is known to be gone."""
    return not is_gone(entry["process"])


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
    if not is_alive(entry):
        return f"ended without a word (process {process.get('pid')} is gone)"
    if is_of_this_machine(process):
        return "running"
    return f"running, or ended without a word (process {process.get('pid')} on host {process.get('host')})"


# ---- writing ---------------------------------------------------------------------------------------------------------


class _Writing(threading.local):
    """The entries that a thread is writing."""

    # While an entry is written, the garbage collector may collect another manager, whose entry is written too: in the
    # same thread, under the lock that this thread holds. That entry waits here until the first is done.

    def __init__(self) -> None:
        self.waiting: deque[tuple[Path, str]] = deque()  # train_dir and JSON of each entry
        self.is_under_way = False


_writing = _Writing()


def write_entry(train_dir: Path | str, entry: Entry) -> None:
    """Add an entry to the ``run.json`` of a ``train_dir``, or replace the one with the same ``id``.

    A damaged file is moved aside, to ``run.json.damaged``, with a warning.

    Raises:
        InputError: the file was written by a newer train_manager, or by another program; it stays as it is.
        OSError: it cannot be read or written.
    """
    # As JSON at once: the owner of the entry may change it before its turn comes.
    _writing.waiting.append((Path(train_dir), json.dumps(_plain(entry), default=str)))
    if _writing.is_under_way:
        return
    _writing.is_under_way = True
    try:
        while _writing.waiting:
            _write(*_writing.waiting.popleft())
    finally:
        _writing.is_under_way = False
        _writing.waiting.clear()


def _write(train_dir: Path, text: str) -> None:
    path, entry = train_dir / RUN_FILE, json.loads(text)
    train_dir.mkdir(parents=True, exist_ok=True)
    with _only_writer(train_dir) as is_alone:
        runs = _present(path)
        places = {run["id"]: place for place, run in enumerate(runs)}
        if entry["id"] in places:
            runs[places[entry["id"]]] = entry
        else:
            runs.append(entry)
        if is_alone:
            _remove_leftovers(path)
        replace_file(path, _file_content(runs), sync=True)


def _file_content(runs: list[Entry]) -> bytes:
    """Return the file as text, with a line for each key of an entry."""
    # `json.dumps(indent=...)` takes forty times as long: it does not use the encoder in C.
    texts = [",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items()) for entry in runs]
    head = f'"schema": {json.dumps(SCHEMA)},\n"version": {VERSION},\n"runs": '
    return "".join(["{", head, "[\n{", "},\n{".join(texts), "}\n]}\n"]).encode()


def _present(path: Path) -> list[Entry]:
    """Return the entries that are there; a file that is damaged is moved aside."""
    try:
        content = path.read_bytes()
        with contextlib.suppress(ValueError, RecursionError):  # json takes a fifth of strict_json's time
            return entries_in(json.loads(content), str(path))
        return entries_in(strict_json(content, str(path)), str(path))
    except FileNotFoundError:
        return []
    except CheckpointError as error:
        aside = free_path(path.with_name(f"{RUN_FILE}.damaged"))
        os.rename(path, aside)
        what = f"{error.what}; it was moved to {aside.name}, and a new one is written"
        warnings.warn(what, RuntimeWarning, stacklevel=users_level())
        return []


def _plain(value: Any) -> Any:
    """Return a value without floats that JSON lacks, and with keys that are texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


@contextmanager
def _only_writer(folder: Path) -> Iterator[bool]:
    """Keep other writers out of a folder's ``run.json``, if its file system has locks; yield whether it has.

    The folder itself is locked, so that no lock file is left behind. Without locks (NFS), of two processes that write
    in the same milliseconds one may lose its entry, which it writes again as its run ends.

    Raises:
        TimeoutError: another one has not ended for long.
    """
    if fcntl is None:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _lock(descriptor, folder)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(f"another process has been writing {folder / RUN_FILE} for {PATIENCE:g} s") from None
            time.sleep(0.002)
        except OSError:
            return False
        else:
            return True


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of killed processes; the caller holds the lock, so no other process writes one."""
    for leftover in path.parent.glob(f".tmp-{RUN_FILE}-*"):
        with contextlib.suppress(OSError):
            leftover.unlink()
