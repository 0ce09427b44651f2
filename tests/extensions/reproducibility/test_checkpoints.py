"""When checkpoints are saved, and which stay; where a training resumes is in test_checkpoints_resuming.py."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.checkpointing import interrupted, losses, path_of, steps_in
from tests.support.training import At
from train_manager import InputError, NonFiniteLoss, every, periodically
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError, HookError, StageError
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

# ---- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("save_at", "steps"),
    [
        (("epoch", "end"), [3, 6, 9]),
        ("epoch", [3, 6, 9]),
        ("end", [9]),
        (every(2), [2, 4, 6, 8]),
        ((every(4), "end"), [4, 8, 9]),
        (periodically(1e-9), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ((), []),
    ],
)
def test_checkpoints_are_saved_when_they_are_asked_for(tmp_path: Path, save_at: Any, steps: list[int]) -> None:
    tiny_manager(Checkpoints(save_at, keep=None), epochs=3, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == steps


def test_at_the_end_of_the_data_the_epoch_is_completed_before_it_is_saved(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(3)), train_dir=tmp_path)
    tm.train()

    assert read_checkpoint(path_of(tmp_path, 3))["epoch_num"] == 1


def test_a_stopped_training_is_saved_where_it_stops(tmp_path: Path) -> None:
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 4 and train_manager.stop("enough"))
    tiny_manager(Checkpoints("end"), stop, epochs=3, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [4]


def test_train_steps_ends_with_a_checkpoint_within_the_epoch(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train_steps(2)

    assert steps_in(tmp_path) == [2]


def test_a_training_that_fails_is_not_saved_as_its_end(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, Checkpoints())

    assert steps_in(tmp_path) == []


def test_a_loop_of_your_own_saves_between_its_batches(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(2)), train_dir=tmp_path)
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)

    assert steps_in(tmp_path) == [2]


def test_any_hook_may_ask_for_one(tmp_path: Path) -> None:
    ask = At("post_train_step_batch", lambda train_manager, step_num: step_num == 2 and train_manager.save_soon())
    tiny_manager(Checkpoints(()), ask, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [2]


def test_a_hook_finds_the_path_of_what_was_saved(tmp_path: Path) -> None:
    seen: list[Path] = []
    note = At("post_save_checkpoint", lambda checkpoint_saved: seen.append(checkpoint_saved))
    tiny_manager(Checkpoints(), note, train_dir=tmp_path).train()

    assert seen == [path_of(tmp_path, 3)]


def test_a_loss_that_is_not_finite_is_an_error_before_it_is_saved(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(every(1)), train_dir=tmp_path)
    tm.loss = lambda prediction, targets: (
        nn.functional.cross_entropy(prediction, targets) * (float("nan") if tm.step_num == 1 else 1.0)
    )

    with pytest.raises(NonFiniteLoss):
        tm.train()
    assert steps_in(tmp_path) == [1]


# ---- which stay ------------------------------------------------------------------------------------------------------


def test_the_newest_stay_and_the_best(tmp_path: Path) -> None:
    measured = losses(0.9, 0.5, 0.1, 0.3, 0.4, 0.2)
    tiny_manager(Checkpoints(keep=2), measured, epochs=5, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [6, 12, 15]


def test_save_at_best_saves_only_what_is_better_than_all_before(tmp_path: Path) -> None:
    measured = losses(0.1, 0.5, 0.6, 0.4, 0.4)
    tiny_manager(Checkpoints("best", keep=None), measured, epochs=4, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3, 9]


def test_without_an_evaluation_there_is_no_best_and_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="save_at has 'best', but there is no eval_data"):
        tiny_manager(Checkpoints(save_at="best"), eval_data=None, train_dir=tmp_path).train()
    assert not (tmp_path / "checkpoints").exists()


def test_nan_is_never_the_best(tmp_path: Path) -> None:
    measured = losses(0.1, float("nan"), 0.6)
    tiny_manager(Checkpoints("best", keep=None), measured, epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [6]


def test_a_resumed_training_remembers_the_best(tmp_path: Path) -> None:
    tiny_manager(Checkpoints("best"), losses(0.1, 0.2), train_dir=tmp_path).train()
    tiny_manager(Checkpoints("best", resume=True), losses(0.3), epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3]


def test_the_manifest_tells_the_metrics(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), losses(0.9, 0.25), train_dir=tmp_path).train()
    manifest = verify(path_of(tmp_path, 3))

    assert (manifest["metrics"], manifest["monitored"], manifest["mode"]) == ({"valid": {"loss": 0.25}}, 0.25, "min")


# ---- in the background -----------------------------------------------------------------------------------------------


def test_what_is_written_in_the_background_is_of_its_own_step(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(every(1), keep=None), epochs=2, train_dir=tmp_path / "at once").train()
    tiny_manager(Checkpoints(every(1), keep=None, in_background=True), epochs=2, train_dir=tmp_path / "later").train()

    for step in range(1, 7):
        one, other = (read_checkpoint(path_of(tmp_path / name, step), ["model"]) for name in ("at once", "later"))
        assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


def test_an_error_in_the_background_ends_the_run(tmp_path: Path) -> None:
    def spoil(train_dir: Path, step_num: int) -> None:
        if step_num == 1:
            (train_dir / "checkpoints").write_text("in the way")

    tm = tiny_manager(Checkpoints(every(2), in_background=True), At("post_train_step_batch", spoil), train_dir=tmp_path)

    with pytest.raises(CheckpointError, match="checkpoints"):
        tm.train()


# ---- their folder ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="folders are locked with flock")
def test_a_second_training_in_the_same_folder_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    def train_another() -> None:
        tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).train()

    first = tiny_manager(Checkpoints(), At("post_train_step_batch", train_another), train_dir=tmp_path)
    with pytest.raises(CheckpointError, match="is being written by another run of this process"):
        first.train()


def test_after_an_earlier_state_was_loaded_new_checkpoints_stay_and_later_ones_are_moved(
    tmp_path: Path,
) -> None:
    tm = tiny_manager(Checkpoints(keep=1), epochs=1, train_dir=tmp_path)
    tm.train()
    early = copy.deepcopy(tm.state_dict())
    tm.train_epochs(2)
    tm.load_state_dict(early)
    tm.train_epochs(1)

    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000000000006", "superseded"]
    assert [path.name for path in (tmp_path / "checkpoints" / "superseded").iterdir()] == ["step-000000000009"]


def test_a_further_run_in_another_working_directory_writes_where_the_first_one_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    tm = tiny_manager(Checkpoints(), epochs=1, train_dir="run")
    tm.train()
    monkeypatch.chdir("elsewhere")
    tm.train_epochs(1)

    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-000000000003", "step-000000000006"]


def test_something_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    tm = tiny_manager(Checkpoints(), train_dir=tmp_path)

    with pytest.raises(
        CheckpointError, match="checkpoints is to hold checkpoints, but is not a folder\n  move it away"
    ):
        tm.train()


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_two_of_them_in_one_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HookError, match="'checkpoints' and 'checkpoints_2' are both of class Checkpoints"):
        tiny_manager(Checkpoints(), Checkpoints("best"), train_dir=tmp_path)


def test_without_a_train_dir_it_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="Checkpoints"):
        tiny_manager(Checkpoints()).train()


def test_a_hook_that_is_called_before_a_run_is_refused() -> None:
    with pytest.raises(StageError) as caught:
        Checkpoints().pre_train(tiny_manager())
    what = "a hook of Checkpoints was called, but no run has opened its folder"
    assert str(caught.value) == f"{what}\n  call it in a run: with tm.run(): ..."


def test_while_it_pauses_nothing_is_saved_and_no_other_process_may_write(tmp_path: Path) -> None:
    checkpoints = Checkpoints("epoch", keep=None)
    tm = tiny_manager(checkpoints, train_dir=tmp_path)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("other", without=["checkpoints"]):
            tm.train_epochs(1)
            assert checkpoints._opened.lock.is_held
        tm.train_epochs(1)

    assert steps_in(tmp_path) == [3, 9]
