"""The copies of checkpoints in a second folder: whole or not there, also if the disk fails or the process is killed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import step_of
from train_manager.checkpoints.mirror import Mirror
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError
from train_manager.files.lock import WriterLock


@pytest.fixture
def source(tmp_path: Path) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints")
    for step in (1, 2, 3):
        folder.write(step, {"step": step}, {"monitored": float(step)})
    return folder


def updated(mirror: Mirror, keep: int | None = 3) -> list[int]:
    mirror.catch_up(keep, "min")
    mirror.join()
    return sound(mirror)


def sound(mirror: Mirror) -> list[int]:
    """Return the steps of the copies, each of which is as it was written."""
    return [verify(path)["step"] for path in mirror.folder.checkpoints()]


def test_each_checkpoint_is_copied_and_as_many_stay(source: CheckpointFolder, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror", source)

    assert updated(mirror) == [1, 2, 3]
    source.write(4, {"step": 4}, {"monitored": 4.0})
    assert updated(mirror, keep=2) == [1, 3, 4]  # the best one, and the newest two
    assert mirror.trouble is None


def test_what_was_copied_is_not_copied_again(source: CheckpointFolder, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror", source)
    updated(mirror)
    before = [path.stat().st_ino for path in mirror.folder.checkpoints()]
    updated(mirror)

    assert [path.stat().st_ino for path in mirror.folder.checkpoints()] == before


def test_copies_of_a_course_that_the_training_has_left_are_set_aside(source: CheckpointFolder, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror", source)
    updated(mirror)
    source.set_aside_after(1)
    again = source.write(2, {"step": 2}, {"monitored": 5.0})

    assert updated(mirror) == [1, 2]
    assert verify(mirror.folder.checkpoints()[-1]) == verify(again)
    assert len([*(mirror.folder.path / "superseded").iterdir()]) == 2


def full(path: str, target: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def spoilt(path: str, target: str) -> None:
    Path(target).write_bytes(Path(path).read_bytes()[:-1] + b"?")


@pytest.mark.parametrize(
    ("copyfile", "why"), [(full, "No space left on device"), (spoilt, "a copy in {} is not what was written")]
)
def test_a_copy_that_fails_is_told_and_comes_later(
    copyfile: Callable[..., None], why: str, source: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(tmp_path / "mirror", source)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", copyfile)
        assert updated(mirror) == []
    assert mirror.trouble is not None
    told = f"checkpoints could not be copied to the mirror: {why.format(mirror.folder.path)}"
    assert (mirror.trouble.what, mirror.trouble.where) == (told, str(mirror.path))
    assert [*mirror.folder.path.iterdir()] == []

    assert updated(mirror) == [1, 2, 3]
    assert str(mirror.trouble) == "None"


def test_a_disk_that_is_not_there_is_not_made_anew_on_another_one(source: CheckpointFolder, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mounted" / "mirror", source)
    mirror.begin()
    assert mirror.trouble is not None
    updated(mirror)
    assert not (tmp_path / "mounted").exists()

    (tmp_path / "mounted").mkdir()
    assert updated(mirror) == [1, 2, 3]


def test_the_mirror_of_another_training_is_refused(source: CheckpointFolder, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with WriterLock(tmp_path / "mirror"), pytest.raises(CheckpointError, match="mirror is being written by another"):
        Mirror(tmp_path / "mirror", source).begin()


def test_a_checkpoint_that_the_training_deletes_meanwhile_is_left_out(
    source: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(path: Path, target: Path) -> None:
        if step_of(path.parent) == 2:
            shutil.rmtree(path.parent)
        target.write_bytes(path.read_bytes())

    monkeypatch.setattr(shutil, "copyfile", deleted)
    mirror = Mirror(tmp_path / "mirror", source)

    assert (updated(mirror), mirror.trouble) == ([1, 3], None)


# ---- a process that is killed ------------------------------------------------------------------------------------


def killed_at(folder: str, line: int) -> None:
    """Bring a mirror up to date, and be killed at a line of the code of files and checkpoints, if there are so many."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not any(part in frame.f_code.co_filename for part in ("/checkpoints/", "/files/", "shutil")):
            return None
        count += 1
        if count == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    mirror = Mirror(Path(folder) / "mirror", CheckpointFolder(Path(folder) / "run" / "checkpoints"))
    sys.settrace(trace)
    mirror._bring_all(2, "min")
    sys.settrace(None)
    print(count)


def survives_kills(source: CheckpointFolder, folder: Path, fork_server: ForkServer, points: int) -> None:
    lines = int(fork_server.run(killed_at, str(folder), -1).output)
    for line in range(1, lines, max(1, lines // points)):
        shutil.rmtree(folder / "mirror")
        child = fork_server.start(killed_at, str(folder), line)
        assert child.wait() == -signal.SIGKILL, child.errors
        mirror = Mirror(folder / "mirror", source)
        assert {*sound(mirror)} <= {1, 2, 3}, f"killed at {line}"  # each that has a name is whole
        mirror.begin()
        assert not [*folder.glob("mirror/checkpoints/.tmp-*")]
        assert updated(mirror, keep=2) == [1, 2, 3]
        mirror.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("points", [4, pytest.param(150, marks=pytest.mark.whole)])
def test_a_process_that_is_killed_leaves_no_copy_that_is_believed_but_broken(
    points: int, source: CheckpointFolder, tmp_path: Path, fork_server: ForkServer
) -> None:
    survives_kills(source, tmp_path, fork_server, points)
