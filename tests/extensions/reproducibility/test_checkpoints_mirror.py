"""The mirror of a training's checkpoints: a second folder from which it can resume."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpointing import Fails, path_of, steps_in
from tests.support.training import weights
from train_manager import every, rehearse
from train_manager.checkpoints import checkpoint_folder
from train_manager.checkpoints.checkpoint_names import checkpoints_in
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError, InputError
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager


@pytest.mark.parametrize("in_background", [False, True])
def test_each_checkpoint_is_in_the_mirror_as_the_training_ends(in_background: bool, tmp_path: Path) -> None:
    checkpoints = Checkpoints(every(1), keep=2, mirror=tmp_path / "mirror", in_background=in_background)
    tiny_manager(checkpoints, epochs=2, train_dir=tmp_path / "run").train()

    assert steps_in(tmp_path / "mirror") == steps_in(tmp_path / "run")
    for step in steps_in(tmp_path / "run"):
        assert verify(path_of(tmp_path / "mirror", step)) == verify(path_of(tmp_path / "run", step))


@pytest.mark.parametrize("at", ["mirror", "last"])
def test_a_training_whose_train_dir_is_lost_resumes_from_there(at: str, tmp_path: Path) -> None:
    (whole := tiny_manager(epochs=2)).train()
    mirror = tmp_path / "mirror"
    with pytest.raises(ZeroDivisionError):
        tiny_manager(Checkpoints(every(2), mirror=mirror), Fails(5), epochs=2, train_dir=tmp_path / "run").train()
    shutil.rmtree(tmp_path / "run")
    options: dict[str, Any] = {"at": mirror} if at == "mirror" else {"mirror": mirror}
    (tm := tiny_manager(Checkpoints(resume=True, **options), epochs=2, train_dir=tmp_path / "run")).train()

    assert steps_in(tmp_path / "run")[0] == 6
    assert weights(tm.model).equal(weights(whole.model))


def test_a_mirror_that_is_not_there_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    mirror = tmp_path / "disk" / "mirror"
    tm = tiny_manager(Checkpoints(every(1), mirror=mirror), train_dir=tmp_path / "run")
    with pytest.warns(UserWarning, match="checkpoints could not be copied") as told:
        tm.train()

    text = "checkpoints could not be copied to the mirror: No such file or directory"
    cure = "the training goes on, and copies what is missing with each further checkpoint"
    assert [str(one.message) for one in told] == [f"{text}: {mirror} ({cure})"]
    assert ([one.what for one in tm.findings], tm.step_num) == ([text], 3)


def test_neither_does_one_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> list[Path]:
        if "mirror" in folder.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return checkpoints_in(folder)

    monkeypatch.setattr(checkpoint_folder, "checkpoints_in", refused)
    tm = tiny_manager(Checkpoints(mirror=tmp_path / "mirror", resume=True), train_dir=tmp_path / "run")
    with pytest.warns(UserWarning, match="could not be copied to the mirror: Permission denied"):
        tm.train()

    assert steps_in(tmp_path / "run") == [3]


def test_checkpoints_of_another_training_in_the_mirror_are_refused_or_moved_away(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    tiny_manager(Checkpoints(mirror=mirror), train_dir=tmp_path / "first").train()
    with pytest.raises(
        CheckpointError, match="mirror/checkpoints has step-000000000003, which this training would not"
    ):
        tiny_manager(Checkpoints(mirror=mirror), train_dir=tmp_path / "second").train()
    tiny_manager(Checkpoints(mirror=mirror, resume="fresh"), train_dir=tmp_path / "second").train()

    assert steps_in(tmp_path / "mirror-before-1") == steps_in(mirror) == [3]


def test_a_rehearsal_leaves_the_mirror_alone(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(mirror=tmp_path / "mirror"), train_dir=tmp_path / "run")
    rehearse(tm).require_none()

    assert not (tmp_path / "mirror").exists()


def test_so_does_a_program_that_is_run_again_into_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAIN_MANAGER_TRAIN_DIR", str(tmp_path / "again"))
    tiny_manager(Checkpoints(mirror=tmp_path / "mirror"), train_dir=tmp_path / "run").train()

    assert [steps_in(path) for path in tmp_path.iterdir()] == [[3]]


def test_a_mirror_must_be_another_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mirror must be a folder, not 3"):
        Checkpoints(mirror=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mirror is train_dir itself"):
        tiny_manager(Checkpoints(mirror=tmp_path), train_dir=tmp_path).train()
