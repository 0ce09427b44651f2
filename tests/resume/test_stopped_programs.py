"""A program that is stopped or killed at any step, and started again, comes to the bits of one that never was."""

from __future__ import annotations

import sys
import warnings
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.resume.resuming import differences
from tests.resume.stopped_programs import (
    WAYS,
    Ends,
    KilledError,
    Program,
    checkpoints_of,
    found_in,
    make,
    play,
    random_end,
    random_program,
    started_again,
)
from tests.resume.test_resume import MEMORY
from tests.support.fork_server import ForkServer
from tests.support.rotation import in_turn, part_of, share_of
from train_manager import TrainManager

pytestmark = pytest.mark.filterwarnings("ignore:train.. has nothing to do")  # ended at the last step
STEPS = 8  # of two epochs
# A stop that saves nothing loses the gradients of its window; and train() is told of at once.
EXPECTED = ("ended within a window", "train() has nothing to do")


def program(**options: Any) -> Program:
    """Two epochs with an evaluation after every second step, which sets the learning rate."""
    usual: dict[str, Any] = {"calls": [("train", 0)], "is_held": False, "eval_at": (2,), "save_at": ("end",)}
    return Program(**{**usual, "evaluates": set(), "saves": set(), **options})


def uninterrupted(of: Program) -> TrainManager:
    tm = make(of)
    play(of, tm)
    return tm


def assert_comes_to_the_same(of: Program, way: str, step: int, whole: TrainManager) -> None:
    with TemporaryDirectory(dir=MEMORY) as folder:
        resumed = started_again(of, way, step, Path(folder))
    assert differences(found_in(whole), found_in(resumed)) == [], f"{way} at step {step} of {of}"


# ---- an evaluation that is due ---------------------------------------------------------------------------------------

ASKED: list[dict[str, Any]] = [{"eval_at": (2,)}, {"eval_at": (), "evaluates": {2, 3, 6, 7, 8}}]


@pytest.mark.parametrize(("way", "asks"), in_turn(WAYS, [*product(ASKED, [("end",), (1, "end")])]), ids=str)
def test_an_evaluation_that_is_due_in_the_step_of_a_stop_is_not_lost(
    way: str, asks: tuple[dict[str, Any], tuple[Any, ...]]
) -> None:
    asked, save_at = asks
    of = program(save_at=save_at, **asked)
    whole = uninterrupted(of)
    assert whole.optimizer.param_groups[0]["lr"] < 0.5  # which the evaluations have lowered
    for step in part_of(range(1, STEPS + 1), 3, 1):
        if way != "kill in the save" or 1 in save_at or step == STEPS:
            assert_comes_to_the_same(of, way, step, whole)


def test_it_is_the_first_thing_that_the_resumed_program_does(tmp_path: Path) -> None:
    of = program()
    with pytest.raises(SystemExit):
        play(of, make(of, checkpoints_of(of), Ends("SIGTERM", 2), train_dir=tmp_path))
    tm = make(of, checkpoints_of(of), Ends("kill", 2), train_dir=tmp_path)  # before the next batch
    with pytest.raises(KilledError):
        play(of, tm)

    assert [row["step"] for row in tm.history.evaluations] == [2]


@pytest.mark.parametrize("is_held", [False, True], ids=["runs of their own", "one run"])
@pytest.mark.parametrize("saved_by", ["save_soon", "end"])
def test_nor_is_an_evaluation_that_the_last_step_of_a_call_asks_for_together_with_a_checkpoint(
    saved_by: str, is_held: bool
) -> None:
    calls = [("train_steps", 3), ("train_steps", 5)]
    saves, save_at = ({3}, ()) if saved_by == "save_soon" else (set[int](), ("end",))
    of = program(calls=calls, is_held=is_held, eval_at=(), evaluates={3}, saves=saves, save_at=save_at)
    whole = uninterrupted(of)

    assert [row["step"] for row in whole.history.evaluations] == [3]
    assert_comes_to_the_same(of, "kill in the save", 3, whole)
    assert_comes_to_the_same(of, "kill", 3, whole)


def test_an_evaluation_that_is_asked_for_in_a_phase_is_made_there(tmp_path: Path) -> None:
    def train(tm: TrainManager) -> TrainManager:
        with tm.run(), tm.phase("first"):
            tm.train()
        return tm

    of = program()
    whole = train(make(of))
    with pytest.raises(SystemExit):
        train(make(of, checkpoints_of(of), Ends("SIGTERM", 6), train_dir=tmp_path))
    resumed = train(make(of, checkpoints_of(of), train_dir=tmp_path))

    assert differences(found_in(whole), found_in(resumed)) == []
    assert [row["phase"] for row in resumed.history.evaluations] == ["first"] * 4


# ---- a phase within an epoch that was left ---------------------------------------------------------------------------


def test_a_phase_may_train_on_the_data_of_an_epoch_that_is_paused() -> None:
    def train(tm: TrainManager) -> TrainManager:
        tm.train_steps(3)
        with tm.phase("on the same data", epochs=1):
            tm.train()
        tm.train_steps(3)
        return tm

    of = program(save_at=(1,))
    whole = train(make(of))
    for step in part_of(range(1, whole.step_num), 3):
        with TemporaryDirectory(dir=MEMORY) as folder:
            with pytest.raises(KilledError):
                train(make(of, checkpoints_of(of), Ends("kill", step), train_dir=Path(folder)))
            resumed = train(make(of, checkpoints_of(of), train_dir=Path(folder)))
        assert differences(found_in(whole), found_in(resumed)) == [], f"killed at step {step}"


# ---- no batch is trained twice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "save_at"), in_turn(WAYS, [("epoch",), ("best",), ("epoch", "end"), ("best", "end")]), ids=str
)
def test_no_batch_is_trained_twice_after_a_stop_within_an_epoch(way: str, save_at: tuple[str, ...]) -> None:
    of = program(save_at=save_at)
    whole = uninterrupted(of)
    for step in part_of(range(1, STEPS + 1), 3, 1):
        if way != "kill in the save" or step == STEPS:
            assert_comes_to_the_same(of, way, step, whole)


@pytest.mark.parametrize(
    ("save_at", "steps"), [("epoch", [4]), ("best", [4]), (("epoch", "end"), [4, 6]), (("best", "end"), [4, 6])]
)
def test_an_epoch_that_was_left_half_way_is_saved_by_the_stop_alone(
    save_at: str | tuple[str, ...], steps: list[int], tmp_path: Path
) -> None:
    of = program(eval_at=("epoch", "end"), save_at=(save_at,) if isinstance(save_at, str) else save_at)
    play(of, make(of, checkpoints_of(of), Ends("stop", 6), train_dir=tmp_path))

    assert sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("checkpoints/step-*")) == steps


def test_an_epoch_that_is_paused_is_saved_with_its_place_in_the_data(tmp_path: Path) -> None:
    of = program(calls=[("train_steps", 3), ("train_steps", 5)], eval_at=("end",), save_at=("best",))
    whole = uninterrupted(of)
    with pytest.raises(KilledError):
        play(of, make(of, checkpoints_of(of), Ends("kill", 3), train_dir=tmp_path))
    assert [path.name for path in tmp_path.glob("checkpoints/step-*")] == ["step-000000000003"]
    resumed = make(of, checkpoints_of(of), train_dir=tmp_path)
    play(of, resumed)

    assert differences(found_in(whole), found_in(resumed)) == []


# ---- gradients of a window -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["eval", "train_steps"])
def test_a_window_is_open_again_after_a_call_before_that_of_the_checkpoint(first: str, tmp_path: Path) -> None:
    def train(tm: TrainManager) -> TrainManager:
        _ = tm.eval() if first == "eval" else tm.train_steps(4)
        tm.train()
        return tm

    of = program(accumulates=3, save_at=(1,))
    whole = train(make(of))
    for step in range(5, 8):  # the windows end at the steps 6 and 8
        folder = tmp_path / str(step)
        with pytest.raises(KilledError):
            train(make(of, checkpoints_of(of), Ends("kill", step), train_dir=folder))
        resumed = train(make(of, checkpoints_of(of), train_dir=folder))  # each warning is an error here

        assert differences(found_in(whole), found_in(resumed)) == []


def test_a_program_that_a_signal_ends_within_a_window_says_nothing_of_gradients_that_it_has_saved(
    tmp_path: Path,
) -> None:
    of = program(accumulates=3)
    with pytest.raises(SystemExit):  # and no warning, which is an error here
        play(of, make(of, checkpoints_of(of), Ends("SIGTERM", 2), train_dir=tmp_path))


# ---- calls that have nothing to do -----------------------------------------------------------------------------------


def play_in(folder: str, calls: list[tuple[str, int]]) -> None:
    of = program(calls=calls)
    play(of, make(of, checkpoints_of(of), train_dir=Path(folder)))


def test_a_call_that_has_nothing_to_do_is_told_of_as_the_program_ends_if_it_trains_nothing(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    play_in(str(tmp_path), [("train_steps", 3)])
    ended = fork_server.run(play_in, str(tmp_path), [("train_steps", 3)])
    trains_on = fork_server.run(play_in, str(tmp_path), [("train_steps", 3), ("train_steps", 1)])

    text = "train_steps(3) has nothing to do: it was completed before the checkpoint that the training resumes from"
    assert f"UserWarning: {text} (call it once more, to train more)" in ended.errors
    assert "nothing to do" not in trains_on.errors


def test_at_a_prompt_it_is_told_of_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    play_in(str(tmp_path), [("train_steps", 3)])

    with pytest.warns(UserWarning, match=r"train_steps\(3\) has nothing to do"):
        play_in(str(tmp_path), [("train_steps", 3)])


# ---- random programs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 10 * share_of(share_of(9)), 10))
def test_a_random_program_comes_to_the_same_and_warns_of_nothing_else(first: int) -> None:
    for seed in range(first, first + 10):
        of = random_program(seed)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            whole = uninterrupted(of)
        usual = {str(one.message) for one in warned}
        way, step = random_end(seed, of, whole.step_num)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert_comes_to_the_same(of, way, step, whole)
        told = {str(one.message) for one in warned} - usual

        assert not [text for text in told if not any(one in text for one in EXPECTED)], f"{way} at step {step} of {of}"
