"""Where a training resumes; that it resumes to the same bits is in tests/resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.checkpointing import Fails, interrupted, losses, path_of, steps_in
from tests.support.rotation import part_of
from tests.support.training import At, weights
from train_manager import Extension, TrainManager, every
from train_manager.checkpoints.hashed_file import hash_of
from train_manager.errors import CheckpointError
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager


def test_a_folder_with_checkpoints_is_refused(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    folder = tmp_path / "checkpoints"

    with pytest.raises(CheckpointError) as caught:
        tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    assert str(caught.value).splitlines()[:2] == [
        f"{folder} has step-000000000003, which this training would not resume from",
        '  Checkpoints(resume=True) resumes from the last one, resume="fresh" moves the folder aside; or give another '
        "train_dir",
    ]


def test_it_is_refused_each_time(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    tm = tiny_manager(Checkpoints(), train_dir=tmp_path)

    for _ in range(2):
        with pytest.raises(CheckpointError, match="which this training would not resume from"):
            tm.train()
    assert tm.step_num == 0


def test_resume_begins_anew_where_there_is_nothing(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
    tm.train()

    assert tm.step_num == 3


def test_a_further_call_of_the_same_training_loads_nothing(tmp_path: Path) -> None:
    seen: list[Any] = []
    note = At("post_load_checkpoint", lambda checkpoint_loaded: seen.append(checkpoint_loaded))
    tm = tiny_manager(Checkpoints(), note, train_dir=tmp_path)
    tm.train()
    tm.epochs = 2
    tm.train()

    assert (seen, tm.step_num) == ([False, False], 6)


def test_calls_of_train_epoch_are_not_counted(tmp_path: Path) -> None:
    def program() -> int:
        tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
        tm.train_epoch()
        tm.train_epoch()
        return tm.epoch_num

    assert (program(), program()) == (2, 4)


def test_a_loop_of_epochs_continues_at_the_epoch_that_the_run_has_loaded(tmp_path: Path) -> None:
    def program(epochs: int) -> int:
        tm = tiny_manager(Checkpoints(resume=True), train_dir=tmp_path)
        with tm.run():
            for _ in range(tm.epoch_num, epochs):
                tm.train_epoch()
        return tm.epoch_num

    assert (program(2), program(3)) == (2, 3)


def test_a_program_that_has_nothing_left_to_train_saves_nothing(tmp_path: Path) -> None:
    def program() -> None:
        tm = tiny_manager(Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
        tm.train()
        with tm.phase("fine-tuning", epochs=1):
            tm.train()

    program()
    with pytest.warns(UserWarning, match="has nothing to do"):
        program()
    assert steps_in(tmp_path) == [3, 6, 9]


@pytest.mark.filterwarnings("ignore:.* has nothing to do")
def test_a_call_that_trains_nothing_saves_nothing(tmp_path: Path) -> None:
    tm = tiny_manager(Checkpoints(), epochs=1, train_dir=tmp_path)
    tm.train()
    tm.train()
    resumed = tiny_manager(Checkpoints(resume=True), epochs=1, train_dir=tmp_path)
    resumed.eval()
    resumed.train()
    assert steps_in(tmp_path) == [3]


def test_killed_twice_in_a_phase_it_continues_in_the_phase(tmp_path: Path) -> None:
    def program(train_dir: Path, *others: Extension) -> TrainManager:
        checkpoints = Checkpoints(save_at=(every(2), "end"), resume=True)
        tm = tiny_manager(checkpoints, *others, epochs=1, train_dir=train_dir)
        tm.train()
        with tm.phase("fine-tuning", epochs=2):
            tm.train()
        return tm

    for step in (7, 6):  # the second time before anything is saved in the phase
        with pytest.raises(ZeroDivisionError):
            program(tmp_path / "killed", Fails(step))
    killed, whole = program(tmp_path / "killed"), program(tmp_path / "whole")
    assert killed.step_num == whole.step_num == 9
    assert torch.equal(weights(killed.model), weights(whole.model))


@pytest.mark.parametrize("step", part_of([7, 2], 2))
def test_evaluations_before_the_call_that_was_killed_are_in_the_history_once(tmp_path: Path, step: int) -> None:
    def program(train_dir: Path, *others: Extension) -> list[tuple[int, float]]:
        tm = tiny_manager(Checkpoints(every(1), resume=True), *others, epochs=2, train_dir=train_dir)
        tm.eval()
        tm.train()
        tm.eval()
        tm.train_epochs(1)
        return [(row["step"], row["loss"]) for row in tm.history.evaluations]

    with pytest.raises(ZeroDivisionError):
        program(tmp_path / "killed", Fails(step))
    assert program(tmp_path / "killed") == program(tmp_path / "whole")


def test_a_hook_finds_the_counts_of_what_was_loaded(tmp_path: Path) -> None:
    seen: list[int] = []
    interrupted(tmp_path, 2, Checkpoints(every(1)))
    note = At("post_load_checkpoint", lambda step_num: seen.append(step_num))
    tiny_manager(Checkpoints(resume=True), note, train_dir=tmp_path).train()

    assert seen == [2]


@pytest.mark.parametrize(("at", "step"), [("last", 6), ("best", 3), (3, 3), ("step-000000000003", 3)])
def test_a_training_continues_at_the_checkpoint_that_is_named(tmp_path: Path, at: Any, step: int) -> None:
    tiny_manager(Checkpoints(), losses(0.9, 0.1, 0.2), epochs=2, train_dir=tmp_path).train()
    tm = tiny_manager(Checkpoints(resume=True, at=at), train_dir=tmp_path)
    tm.eval()

    assert tm.step_num == step


@pytest.mark.parametrize("at", ["frist", "elsewhere/checkpoints/step-000000000006", Path("elsewhere")])
def test_a_path_that_is_not_there_is_an_error_also_if_the_training_has_checkpoints(tmp_path: Path, at: Any) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()

    with pytest.raises(CheckpointError, match=f"has no checkpoint '{at}'\n  there are checkpoints of the steps 3"):
        tiny_manager(Checkpoints(resume=True, at=at), train_dir=tmp_path).train()


def test_a_step_that_was_not_saved_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()

    with pytest.raises(CheckpointError, match="has no checkpoint of step 4\n  there are checkpoints of the steps 3, 6"):
        tiny_manager(Checkpoints(resume=True, at=4), train_dir=tmp_path).train()


def test_later_checkpoints_are_set_aside_as_a_training_continues_before_them(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=3, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True, at=3), epochs=2, train_dir=tmp_path).train()

    assert steps_in(tmp_path) == [3, 6]
    assert {path.name for path in (tmp_path / "checkpoints" / "superseded").iterdir()} == {
        "step-000000000006",
        "step-000000000009",
    }


def test_an_evaluation_sets_nothing_aside(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=3, train_dir=tmp_path).train()
    tiny_manager(Checkpoints(resume=True, at=3), train_dir=tmp_path).eval()

    assert steps_in(tmp_path) == [3, 6, 9]


def test_a_new_training_begins_from_the_path_of_another(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path / "old").train()
    start = Checkpoints(resume=True, at=path_of(tmp_path / "old", 3))
    tiny_manager(start, epochs=2, train_dir=tmp_path / "new").train()

    assert (steps_in(tmp_path / "old"), steps_in(tmp_path / "new")) == ([3], [6])


def test_the_other_one_may_be_named_by_its_train_dir(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path / "old").train()
    tm = tiny_manager(Checkpoints(resume=True, at=tmp_path / "old"), train_dir=tmp_path / "new")
    tm.eval()

    assert tm.step_num == 6


def test_a_training_that_began_from_another_resumes_from_its_own(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    tiny_manager(Checkpoints(), train_dir=old).train()
    for epochs in (2, 3):
        tm = tiny_manager(Checkpoints(resume=True, at=path_of(old, 3)), epochs=epochs, train_dir=new)
        result = tm.train()

    assert (result.steps, steps_in(new)) == (3, [6, 9])


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()
    damaged = path_of(tmp_path, 6) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    tm = tiny_manager(Checkpoints(resume=True), epochs=1, train_dir=tmp_path)

    with pytest.warns(RuntimeWarning, match="step-000000000006 is damaged.*step-000000000003 is used instead") as told:
        tm.eval()
    assert (tm.step_num, told[0].filename) == (3, __file__)


def test_a_damaged_checkpoint_that_is_asked_for_is_an_error(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), epochs=2, train_dir=tmp_path).train()
    (path_of(tmp_path, 6) / "state.json").unlink()

    with pytest.raises(CheckpointError, match=r"step-000000000006 is damaged: state\.json is missing"):
        tiny_manager(Checkpoints(resume=True, at=6), train_dir=tmp_path).train()


def test_a_training_with_other_threads_is_told_that_bits_may_differ(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.warns(RuntimeWarning, match=rf"threads of torch {threads} \(here {threads + 1}\)"):
            tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).eval()
    finally:
        torch.set_num_threads(threads)


def test_a_resume_hashes_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    hashed: list[str] = []

    def counted(path: Path) -> str:
        hashed.append(path.name)
        return hash_of(path)

    monkeypatch.setattr("train_manager.checkpoints.verification.hash_of", counted)
    tiny_manager(Checkpoints(resume=True), train_dir=tmp_path).eval()

    assert hashed == ["model.safetensors", "state.json", "state.safetensors"]
