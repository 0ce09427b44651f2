"""Records of version 1, with a patch and an archive, are restored as before."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from train_manager.runs.code.old_payload import OldPayload

from tests.runs.code.repositories import RUN, tree
from tests.runs.code.sample_records import committed, recorded, write
from train_manager.runs.code.restore import restore_code

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
DAMAGED = "is not put back: its content in the record is damaged, or not there"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a changed, a binary, a new and a deleted file, and an old record of it in ``runs``."""
    root = tmp_path / "lab"
    committed(root, {"train.py": "lr = 1\n", "old.py": "old\n", "weights.bin": b"\0" * 9})
    write(root, {"train.py": "lr = 2\n", "lib/new.py": "new\n", "weights.bin": b"\0" * 12})
    (root / "old.py").unlink()
    train_dir, record = recorded(root, tmp_path / "runs")
    (train_dir / "code" / f"{RUN}.json").write_text(json.dumps(record))
    return root


def problems(root: Path) -> list[str]:
    return restore_code(root.parent / "runs", RUN, root.parent / "again").problems


def test_an_old_record_is_put_back(root: Path) -> None:
    assert problems(root) == []
    assert tree(root.parent / "again/lab") == tree(root)


def test_a_patch_that_was_changed_is_not_applied(root: Path) -> None:
    path = root.parent / "runs/code/payload/changes.patch"
    path.write_bytes(path.read_bytes().replace(b"lr = 2", b"lr = 3"))

    assert problems(root) == [
        "changes.patch of the record is damaged, or not there",
        "train.py is not what it was",
        "weights.bin is not what it was",
    ]


def test_an_archive_that_was_changed_is_not_unpacked(root: Path) -> None:
    path = root.parent / "runs/code/payload/files.tar"
    path.write_bytes(path.read_bytes().replace(b"new\n", b"NEW\n"))

    assert problems(root) == [f"lib/new.py {DAMAGED}", "lib/new.py is not what it was"]


@pytest.mark.parametrize("name", ["../../etc", "/etc", "code/..", "code/../../x"])
def test_a_payload_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    assert OldPayload(tmp_path, {"payload": name}).folder is None


def old(folder: Path, *members: tarfile.TarInfo, **options: Any) -> OldPayload:
    (folder / "code/ab").mkdir(parents=True)
    with tarfile.open(folder / "code/ab/files.tar", "w", **options) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO() if member.isreg() else None)
    return OldPayload(folder, {"payload": "code/ab"})


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_devices_pipes_and_hard_links_in_an_archive_are_passed_over(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("odd")
    member.type, member.linkname = kind, "/etc/passwd"
    found = old(tmp_path, member, tarfile.TarInfo("plain"))

    assert found.content({"path": "odd", "sha256": EMPTY}) is None
    assert found.content({"path": "plain", "sha256": EMPTY}) == b""


def test_a_file_with_holes_that_claims_to_be_huge_is_passed_over(tmp_path: Path) -> None:
    header = tarfile.TarInfo("huge")
    header.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(10**15), "GNU.sparse.numblocks": "1"}

    assert old(tmp_path, header, format=tarfile.PAX_FORMAT).content({"path": "huge", "sha256": EMPTY}) is None
