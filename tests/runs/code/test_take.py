"""A code record says which commit a training ran, and keeps what differs from it."""

from __future__ import annotations

from pathlib import Path

from tests.runs.code.repositories import RUN, git, repository
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.store import blob_of
from train_manager.runs.code.take import take_code_record


def test_a_change_a_new_file_and_a_deletion_are_recorded(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n", "old.py": b"old\n", "same.py": b"same\n"})
    (root / "train.py").write_bytes(b"print(2)\n")
    (root / "new.py").write_bytes(b"new\n")
    (root / "old.py").unlink()

    record = take_code_record(root, tmp_path / "runs", RUN)

    (entry,) = record["repositories"]
    assert entry["commit"] == git(root, "rev-parse", "HEAD").decode().strip()
    blobs = [blob_of(content) for content in (b"new\n", b"old\n", b"print(2)\n")]
    assert entry["files"] == [
        {"path": "new.py", "status": "added", "mode": "100644", "blob": blobs[0], "size": 4},
        {"path": "old.py", "status": "deleted", "mode": "100644", "blob": blobs[1], "size": 0},
        {"path": "train.py", "status": "modified", "mode": "100644", "blob": blobs[2], "size": 9},
    ]
    assert len(entry["tree"]) == 40
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert restored.problems == []
    assert (restored.root / "train.py").read_bytes() == b"print(2)\n"
    assert sorted(path.name for path in restored.root.iterdir()) == [".git", "new.py", "same.py", "train.py"]


def test_a_changed_file_that_ran_is_listed_once(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n"})
    (root / "train.py").write_bytes(b"print(2)\n")

    (entry,) = take_code_record(root, tmp_path / "runs", RUN, loaded=[root / "train.py"])["repositories"]

    assert [file["path"] for file in entry["files"]] == ["train.py"]
