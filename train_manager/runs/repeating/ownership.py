"""Whether a record is the user's own. It guards against mistakes and is not a sandbox: a record can be forged."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from train_manager.runs.code.store import CODE
from train_manager.runs.record.processes import is_of_this_machine
from train_manager.runs.record.run_file import run_file
from train_manager.runs.repeating.run_to_repeat import RunToRepeat

LATER: Final = 60.0  # seconds by which a file may be younger than the end of its run: clocks of file servers differ


def reason_to_ask(run: RunToRepeat) -> str | None:
    """Return why a record may be somebody else's, or changed since; None if it is of this user, made on this machine.

    Of a run without an end it is not known whether its record was changed afterwards.
    """
    process = run.entry["process"]
    if not is_of_this_machine(process):
        return f"it was recorded on another machine, {process.get('host')!r}"
    # A run that is still open writes its file at any time, so the age of the file says nothing.
    end = run.entry.get("ended")
    ended = None if end is None else datetime.fromisoformat(end).timestamp()
    for path in (run_file(run.train_dir, run.entry["id"]), run.train_dir / CODE / f"{run.entry['id']}.json"):
        if path.exists() and (reason := _reason_of_file(path, ended)):
            return f"{path} {reason}"
    return None


def _reason_of_file(path: Path, ended: float | None) -> str | None:
    found = path.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return "belongs to another user"
    if ended is not None and found.st_mtime > ended + LATER:
        return "was changed after the end of the run"
    return None
