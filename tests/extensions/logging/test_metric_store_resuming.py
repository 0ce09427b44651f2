"""Metrics of trainings that resume, go back, fork and run beside each other."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.logging.stored import Losses, Writes, history_is_that_of, stored
from tests.support.fork_server import ForkServer
from tests.support.resuming import Kill, KilledError, Resume
from train_manager import Extension, TrainManager, every
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager
from train_manager.tools import read_run

# ---- resuming --------------------------------------------------------------------------------------------------------


def killed(folder: Path, after: int, **options: Any) -> dict[str, Any]:
    """Train until a step; return the state after the step before it."""
    tm = tiny_manager(MetricStore(), train_dir=folder, **options)
    tm.add_extension(kill := Kill(after), "kill")
    with pytest.raises(KilledError):
        tm.train()
    return kill.states[after - 1]


def without_parameters(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name != "parameters"}


def killed_with_checkpoints(folder: Path, after: int, epochs: int = 3) -> None:
    """Train until a step, with a checkpoint of every step."""

    def kill(step_num: int) -> None:
        if step_num == after:
            raise KilledError

    tm = tiny_manager(MetricStore(), Checkpoints(every(1), keep=10), epochs=epochs, train_dir=folder)
    tm.add_extension(pre_train_step_batch=kill)
    with pytest.raises(KilledError):
        tm.train()


def resumed(
    folder: Path, *extensions: Any, at: Any = "last", epochs: int = 3, into: Path | None = None
) -> TrainManager:
    used = MetricStore(), Checkpoints(every(1), keep=10, resume=True, at=at), *extensions
    tm = tiny_manager(*used, epochs=epochs, train_dir=into or folder)
    tm.train()
    return tm


@pytest.mark.parametrize("after", [2, 4, 7])
def test_after_a_resume_the_store_has_what_the_training_has(tmp_path: Path, after: int) -> None:
    killed_with_checkpoints(tmp_path, after)
    tm = resumed(tmp_path, losses := Losses())

    assert history_is_that_of(tm, tmp_path)
    found = stored(tmp_path, "loss")
    assert list(found) == list(range(1, 10))
    assert {step: found[step] for step in losses.values} == losses.values


def steps_of(folder: Path, name: str = "loss", stage: str = "train_step_batch", run: str | None = None) -> list[int]:
    found = read_run(folder).metrics.scalars(name, stage, run=run)
    return [step for of in found.values() for step in of.steps]


def steps_of_all_runs(folder: Path) -> list[list[int]]:
    """The steps of the losses that count for each run, the oldest first."""
    runs = dict.fromkeys(part.run for part in read_run(folder).metrics.runs())
    return [steps_of(folder, run=run) for run in runs]


def test_a_resume_leaves_the_rows_of_the_run_before_as_they_are(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 7)
    resumed(tmp_path, at=tmp_path / "checkpoints" / "step-000000000004")

    assert steps_of_all_runs(tmp_path) == [[*range(1, 8)], [*range(1, 10)]]
    assert steps_of(tmp_path, stage="train_step_epoch") == [3, 6, 9]


def test_after_four_resumes_in_a_row_each_step_counts_once(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 3)
    for after in (5, 6, 8):
        with pytest.raises(KilledError):
            resumed(tmp_path, KillAt(after))
    tm = resumed(tmp_path)

    assert steps_of(tmp_path) == list(range(1, 10))
    assert [len(steps) for steps in steps_of_all_runs(tmp_path)] == [3, 5, 6, 8, 9]
    assert history_is_that_of(tm, tmp_path)


class KillAt(Extension):
    """Leave the training before a step."""

    def __init__(self, after: int) -> None:
        self.after = after

    def pre_train_step_batch(self, step_num: int) -> None:
        if step_num == self.after:
            raise KilledError


def test_a_training_from_nothing_is_another_run(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path / "a", 4)
    tiny_manager(MetricStore(), train_dir=tmp_path / "a").train()

    assert steps_of_all_runs(tmp_path / "a") == [[1, 2, 3, 4], [1, 2, 3]]
    assert list(stored(tmp_path / "a", "loss")) == [1, 2, 3]


def test_a_checkpoint_of_a_training_continues_with_the_rows_of_that_one(tmp_path: Path) -> None:
    first = tiny_manager(MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path)
    first.train()
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    checkpoint = tmp_path / "checkpoints" / "step-000000000006"
    tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path).train()

    assert steps_of_all_runs(tmp_path) == [[1, 2, 3, 4, 5, 6], [1, 2, 3], [*range(1, 10)]]
    assert list(stored(tmp_path, "loss")) == list(range(1, 10))


def test_a_checkpoint_of_another_folder_counts_no_row_of_this_one(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path / "other").train()
    tiny_manager(MetricStore(), epochs=3, train_dir=tmp_path / "here").train()
    checkpoint = tmp_path / "other" / "checkpoints" / "step-000000000006"
    tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path / "here").train()

    assert steps_of_all_runs(tmp_path / "here") == [[*range(1, 10)], [7, 8, 9]]
    assert list(stored(tmp_path / "here", "loss")) == [7, 8, 9]


def test_a_resume_into_another_folder_brings_the_history_along(tmp_path: Path) -> None:
    state = killed(tmp_path / "first", 4, epochs=2)
    tm = tiny_manager(MetricStore(), Resume(state), epochs=2, train_dir=tmp_path / "second")
    tm.train()

    assert history_is_that_of(tm, tmp_path / "second")


def test_the_rows_after_a_state_that_is_loaded_between_two_calls_no_longer_count(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), losses := Losses(), train_dir=tmp_path)
    tm.train_steps(4)
    state = copy.deepcopy(tm.state_dict())
    tm.train_steps(5)
    tm.load_state_dict(without_parameters(state))
    tm.train_steps(3)

    assert list(stored(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6, 7]
    assert stored(tmp_path, "loss")[6] == losses.values[6]
    assert history_is_that_of(tm, tmp_path)


class Calls(Extension):
    """Write how many steps were trained so far, which tells the rows of one step apart."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {}  # it counts on where the training goes back

    def post_train_step_batch(self, writer: MetricWriter) -> None:
        self.count += 1
        writer.scalar("calls", self.count)


def test_a_state_of_a_later_step_goes_on_from_the_rows_that_led_to_it(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Calls(), train_dir=tmp_path)
    tm.train_steps(2)
    early = copy.deepcopy(tm.state_dict())
    tm.train_steps(3)
    late = copy.deepcopy(tm.state_dict())
    tm.load_state_dict(early)
    tm.train_steps(2)
    between = copy.deepcopy(tm.state_dict())
    tm.load_state_dict(late)
    tm.train_steps(1)

    assert stored(tmp_path, "calls", "") == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8}
    tm.load_state_dict(between)
    tm.train_steps(1)
    assert stored(tmp_path, "calls", "") == {1: 1, 2: 2, 3: 6, 4: 7, 5: 9}


def test_a_program_that_only_evaluates_adds_to_the_history(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    before = read_run(tmp_path).history
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.eval()
    after = read_run(tmp_path).history

    assert (after.epochs, after.evaluations) == (before.epochs, [*before.evaluations, *tm.history.evaluations])


def test_a_training_and_its_copy_are_two_runs(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), losses := Losses(), train_dir=tmp_path)
    tm.train_steps(4)
    copy.deepcopy(tm).train_steps(3)
    tm.train_steps(2)
    history = read_run(tmp_path).metrics.history(tm.run_id)

    assert stored(tmp_path, "loss", run=tm.run_id) == losses.values
    assert (history["epochs"], history["evaluations"]) == (tm.history.epochs, tm.history.evaluations)


def test_an_evaluation_of_an_earlier_checkpoint_cuts_nothing(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(every(1), keep=10), epochs=1, train_dir=tmp_path).train()
    resumed(tmp_path, epochs=3)
    before = read_run(tmp_path).history
    checkpoint = tmp_path / "checkpoints" / "step-000000000003"
    tm = tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), Writes(), epochs=1, train_dir=tmp_path)
    tm.eval()
    after = read_run(tmp_path).history

    assert list(stored(tmp_path, "loss")) == [*range(1, 10)]
    assert stored(tmp_path, "of_eval", "") == {3: 0.5}
    # A program that has resumed may train next: its evaluation is not a row of the history yet.
    assert (after.epochs, after.evaluations) == (before.epochs, before.evaluations)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_evaluation_before_the_training_is_of_the_same_run(tmp_path: Path, is_first: bool) -> None:
    if not is_first:
        tiny_manager(MetricStore(), Writes(), epochs=3, train_dir=tmp_path).train()
    tm = tiny_manager(MetricStore(), Writes(), losses := Losses(), train_dir=tmp_path)
    tm.eval()
    tm.train()

    assert stored(tmp_path, "loss") == losses.values
    assert history_is_that_of(tm, tmp_path)
    [found] = read_run(tmp_path).metrics.scalars("of_eval").values()
    # Where another training is in the folder, the evaluation was of that one, as far as the store knew.
    assert found.steps == ([0, 0, 3] if is_first else [0, 3])


def test_a_training_after_an_evaluation_of_its_checkpoint_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 7)
    checkpoint = tmp_path / "checkpoints" / "step-000000000004"
    tm = tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path)
    tm.eval()
    tm.train()

    assert list(stored(tmp_path, "loss")) == [*range(1, 10)]
    assert history_is_that_of(tm, tmp_path)


def test_two_trainings_at_once_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    """Neither deletes or hides the rows of the other, whichever began first."""
    one, two = (tiny_manager(MetricStore(), Writes(), epochs=4, train_dir=tmp_path) for _ in range(2))
    with one.run(), two.run():
        for tm in (one, two, two, one, one):
            tm.train_epochs(1)

    metrics = read_run(tmp_path).metrics
    for tm, steps in ((one, 9), (two, 6)):
        assert steps_of(tmp_path, run=tm.run_id) == [*range(1, steps + 1)]
        assert steps_of(tmp_path, "twice", "", run=tm.run_id) == [*range(1, steps + 1)]
        assert metrics.history(tm.run_id) == tm.history.state_dict()
    assert {part.run for part in metrics.runs()} == {one.run_id, two.run_id}


def train_beside_another(folder: Path) -> None:
    tm = tiny_manager(MetricStore(), Writes(), epochs=10, train_dir=folder)
    tm.train()
    print("trained", tm.run_id, flush=True)


def test_two_processes_train_in_one_folder_at_once(fork_server: ForkServer, tmp_path: Path) -> None:
    children = [fork_server.start(train_beside_another, tmp_path) for _ in range(2)]
    runs = [child.wait_for("trained").split()[1] for child in children]

    assert [child.wait() for child in children] == [0, 0]
    assert [child.errors for child in children] == ["", ""]
    for run in runs:
        assert steps_of(tmp_path, run=run) == steps_of(tmp_path, "twice", "", run=run) == [*range(1, 31)]


def test_an_extension_in_use_can_be_pickled(tmp_path: Path) -> None:
    tm = tiny_manager(store := MetricStore(), train_dir=tmp_path)
    tm.train()
    again = pickle.loads(pickle.dumps(store))
    tiny_manager(again, train_dir=tmp_path / "again").train()

    assert list(stored(tmp_path / "again", "loss")) == [1, 2, 3]
