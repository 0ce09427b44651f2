"""A disk that is full or fails while a checkpoint is written: the error says so, and all else is as it was."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.states import small_state
from tests.support.fork_server import ForkServer
from tests.support.programs import code
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError

ROOT = Path(__file__).parents[2]
NAME = "step-000000000002"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of checkpoints with a sound one in it."""
    write_checkpoint(tmp_path / "checkpoints", "step-000000000001", small_state(1), {})
    return tmp_path / "checkpoints"


def refusal(folder: Path, state: Any = None) -> str:
    """What a save says that must fail, without what is random; the sound checkpoint stays, with nothing beside it."""
    with pytest.raises(CheckpointError) as info:
        write_checkpoint(folder, NAME, small_state(2) if state is None else state, {})
    verify(folder / "step-000000000001")
    assert os.listdir(folder) == ["step-000000000001"]
    return re.sub(r"(\.tmp-step-\d+)-\w+", r"\1", str(info.value))


def failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, at: Callable[[int], bool]) -> None:
    """Let some of the calls of one function of `os` fail with an error of the system, as a disk would."""
    real, calls = getattr(os, call), [0]

    def faulty(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if at(calls[0]):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, faulty)


def opened_as(descriptor: int) -> Path:
    """The name of an open file."""
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize(
    ("call", "file"), [(1, "model.safetensors"), (3, "model.safetensors"), (6, "state.safetensors")]
)
def test_a_disk_that_is_full_is_an_error_in_the_words_of_the_system(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: int, file: str
) -> None:
    failing(monkeypatch, "write", number, lambda at: at >= call)

    assert refusal(folder) == f"write failed at {folder}/.tmp-{NAME}/{file}: {os.strerror(number)}"


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checkpoints.verification import verify
folder = Path(sys.argv[1])
write_checkpoint(folder, "step-000000000001", {"model": {"weight": torch.ones(1000)}}, {})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    write_checkpoint(folder, "step-000000000002", {"model": {"weight": torch.ones(1_000_000)}}, {})
except Exception as error:
    print(type(error).__name__, error)
verify(folder / "step-000000000001")
print([path.name for path in folder.iterdir()])
"""


def test_a_real_limit_of_the_system_is_told(tmp_path: Path, fork_server: ForkServer) -> None:
    told, left = fork_server.run(code, LIMITED, str(tmp_path)).output.splitlines()

    assert re.fullmatch(
        rf"CheckpointError write failed at {tmp_path}/\.tmp-.*/model\.safetensors: File too large", told
    )
    assert left == "['step-000000000001']"


@pytest.mark.parametrize("file", ["model.safetensors", "state.json", "state.safetensors", "manifest.json"])
def test_a_write_that_fails_is_told_with_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    real = os.write

    def faulty(descriptor: int, content: bytes) -> int:
        if opened_as(descriptor).name == file:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, content)

    monkeypatch.setattr(os, "write", faulty)

    assert refusal(folder) == f"write failed at {folder}/.tmp-{NAME}/{file}: Input/output error"


@pytest.mark.parametrize("file", ["model.safetensors", "state.json", "state.safetensors", "manifest.json"])
def test_a_sync_of_a_file_that_fails_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    real = os.fsync

    def faulty(descriptor: int) -> None:
        if opened_as(descriptor).name == file:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", faulty)

    assert refusal(folder) == f"sync failed at {folder}/.tmp-{NAME}/{file}: Input/output error"


def test_a_rename_that_fails_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "rename", errno.EIO, lambda at: True)

    assert refusal(folder) == f"write failed at {folder}/{NAME}: Input/output error"


def test_a_last_sync_that_fails_says_that_the_checkpoint_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "fsync", errno.EIO, lambda at: at == 6)

    with pytest.raises(CheckpointError) as info:
        write_checkpoint(folder, NAME, small_state(2), {})

    assert str(info.value) == (
        f"sync failed at {folder}: Input/output error\n  {folder / NAME} is complete, but a power failure could lose it"
    )
    verify(folder / NAME)


def test_a_file_system_that_cannot_sync_folders_is_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "fsync", errno.EINVAL, lambda at: at >= 5)

    verify(write_checkpoint(folder, NAME, small_state(2), {}))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_to_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failing(monkeypatch, "mkdir", number, lambda at: True)

    assert refusal(folder) == f"write failed at {folder}/{NAME}: {os.strerror(number)}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_an_error(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        assert "Permission denied" in refusal(folder)
    finally:
        folder.chmod(0o700)


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")

    with pytest.raises(CheckpointError) as info:
        write_checkpoint(tmp_path / "checkpoints", NAME, {}, {})

    assert str(info.value) == f"write failed at {tmp_path}/checkpoints: File exists"


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", f".tmp-{NAME}"])
def test_a_folder_that_is_deleted_while_it_is_written_to_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def deleting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *more: Any) -> Any:
            opened = opened_as(descriptor)
            if opened.name == name or opened.name.startswith(f"{name}-"):
                shutil.rmtree(folder)
            return real(descriptor, *more)

        return call

    monkeypatch.setattr(os, "write", deleting(os.write))
    monkeypatch.setattr(os, "fsync", deleting(os.fsync))

    with pytest.raises(
        CheckpointError, match=r"^((write|sync|rename) failed at .*|.* cannot be read): No such file or directory$"
    ):
        write_checkpoint(folder, NAME, small_state(2), {})
    assert not folder.exists()


def test_a_checkpoint_that_appears_in_the_meantime_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def appearing(descriptor: int) -> None:
        (folder / NAME).mkdir(exist_ok=True)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", appearing)

    with pytest.raises(CheckpointError, match="is there already, and nothing is overwritten"):
        write_checkpoint(folder, NAME, small_state(2), {})
    assert sorted(os.listdir(folder)) == ["step-000000000001", NAME]


def test_the_next_save_makes_a_deleted_folder_anew(folder: Path) -> None:
    shutil.rmtree(folder)

    verify(write_checkpoint(folder, NAME, small_state(2), {}))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_any_other_error_while_writing_comes_out_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupted(descriptor: int) -> None:
        raise error("in the middle")

    monkeypatch.setattr(os, "fsync", interrupted)

    with pytest.raises(error, match=r"^in the middle$"):
        write_checkpoint(folder, NAME, small_state(2), {})
    assert os.listdir(folder) == ["step-000000000001"]


def test_a_write_that_takes_a_part_at_a_time_writes_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:100]))

    verify(write_checkpoint(folder, NAME, small_state(2), {}))


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "open", errno.EIO, lambda at: at == 2)

    with pytest.raises(CheckpointError) as info:
        verify(folder / "step-000000000001")

    assert str(info.value) == f"{folder}/step-000000000001/model.safetensors cannot be read: Input/output error"


def test_the_manifest_of_a_save_is_written_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, real = [], os.open

    def noted(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT:
            files.append(Path(path).name)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", noted)
    write_checkpoint(folder, NAME, small_state(2), {})

    assert files == ["model.safetensors", "state.json", "state.safetensors", "manifest.json"]
    assert json.loads((folder / NAME / "manifest.json").read_text())["step"] == 2
