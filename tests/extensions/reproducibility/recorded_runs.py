"""What the tests of RunRecord share: its entry, its file, and a failure."""

from __future__ import annotations

from pathlib import Path

from train_manager.runs.record.run_file import Entry, read_runs


def the_entry(train_dir: Path) -> Entry:
    (entry,) = read_runs(train_dir)
    return entry


def the_file(train_dir: Path) -> Path:
    (path,) = train_dir.glob("run*.json")
    return path


def fail() -> None:
    raise ZeroDivisionError("as planned")
