"""What a record leaves behind beside itself: nothing, however many there are."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.hostile import new_world
from tests.support.other_processes import children
from tests.support.rotation import share_of
from train_manager.runs.code.take import take_code_record


def held(folder: Path) -> dict[str, Any]:
    """What this process holds: threads, open files, child processes, temporary folders."""
    gc.collect()
    return {
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "children": children(),
        "folders": sorted(os.listdir(folder)),
    }


def test_many_records_leave_no_process_no_thread_no_file_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    world = new_world(tmp_path)
    take_code_record(world.repository, tmp_path / "train_dir", "first")  # imports what it needs
    before = held(tmp_path / "temporary")

    count = share_of(30)
    for number in range(count):
        take_code_record(world.repository, tmp_path / "train_dir", f"run{number}")

    assert held(tmp_path / "temporary") == before
    names = [path.suffix for path in (tmp_path / "train_dir" / "code").iterdir()]
    assert (names.count(".json"), names.count(".diff"), names.count("")) == (count + 1, count + 1, 1)  # and the store
