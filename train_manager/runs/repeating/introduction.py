"""The introduction of a recorded run before it is run again: its facts, and the differences of this environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from train_manager.runs.code.record import changed_files, read_code_record
from train_manager.runs.record.environment import environment
from train_manager.runs.repeating.restored_code import code_in_words
from train_manager.runs.repeating.run_to_repeat import RunToRepeat
from train_manager.runs.repeating.surroundings import MOST, differing, environment_rows

BEFORE: Final = ("python", "train_manager", "platform", "packages", "torch", "devices")
"""Entries of the environment that are compared before the program runs; it may set the other ones itself."""


def introduction(run: RunToRepeat, *, here: bool) -> Iterator[str]:
    """Yield the outcome, the code and the beginning of a run, and the differences of its environment, in lines.

    Args:
        here: whether the program runs as it is now, and not the code of the record.
    """
    yield f"run: {run.train_dir}#{run.entry['id']}, begun {_minute(run.entry['began'])}; {run.outcome}"
    yield from (f"code: {text}" for text in (["as it is now"] if here else code_in_words(run)))
    yield from (f"begin: {text}" for text in _begin(run))
    yield from (f"environment: {text}" for text in _environment(run.entry))


def _minute(began: str) -> str:
    return datetime.fromisoformat(began).astimezone().strftime("%Y-%m-%d %H:%M")


def _begin(run: RunToRepeat) -> Iterator[str]:
    before = run.entry.get("goes_on_from")
    if not before:
        return
    # The run that it resumed from is not in this folder.
    if len(run.chain) == 1:
        yield f"it resumed from {before.get('checkpoint')}, which its program must find again"
        return
    yield f"it resumed after step {before.get('step')} of run {before.get('run')}; here it runs from the beginning"
    # The code of each earlier run is compared with the code of the last one, which is restored.
    codes = [_key(read_code_record(run.train_dir, entry["id"])) for entry in run.chain]
    if any(code != codes[-1] for code in codes):
        yield "its runs had different code; here all of it runs with the code of the last run"


def _key(code: Mapping[str, Any] | None) -> Any:
    """Return a value that is equal for two records of the same code."""
    return [
        (one.get("inside"), one.get("commit"), one.get("tree"), [file["path"] for file in changed_files(one)])
        for one in (code or {}).get("repositories") or ()
    ]


def _environment(entry: Mapping[str, Any]) -> Iterator[str]:
    before, here = entry.get("environment") or {}, environment()
    parts = [part for part in BEFORE if part in before]
    rows = environment_rows(before, parts), environment_rows(here, parts)
    interpreter = (entry.get("command") or {}).get("interpreter")
    if interpreter and _folder(interpreter) != _folder(sys.executable):  # not python and python3 of one folder
        rows[0]["interpreter"], rows[1]["interpreter"] = interpreter, sys.executable
    found = differing(*rows)
    yield from found[:MOST]
    if len(found) > MOST:
        yield f"{len(found) - MOST} more differences"


def _folder(interpreter: str) -> str:
    return os.path.dirname(os.path.normpath(interpreter))
