"""A learner that was killed resumes, in the same program, to the same bits; in a process of its own each time."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.learner.files import dataset, options, right, train_all
from tests.support.fork_server import ForkServer
from tests.support.resuming import differences, state_of
from train_manager import Extension
from train_manager.learner import create_dataloader, eval_model
from train_manager.runs.record.run_file import outcome_of, read_runs

EMA = {"ema": {"use": "EMA", "decay": 0.9}}


class End(Extension):
    """Send a signal to the own process after a step."""

    def __init__(self, after: int, number: int) -> None:
        self.after, self.number = after, number

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.after:
            os.kill(os.getpid(), self.number)


def program(train_dir: Path, after: int | None = None, number: int = signal.SIGKILL, **given: Any) -> None:
    """Train two epochs of a phase and four of labels, 24 steps; write the final state."""
    warnings.filterwarnings("error", ".* has nothing to do")
    extensions = {} if after is None else {"kill": End(after, number)}
    learner = train_all(options(train_dir, **given), extensions)
    state = state_of(learner.tm)
    learner.close()
    Path(f"{train_dir}.state").write_bytes(pickle.dumps((learner.tm.epoch_num, learner.tm.step_num, state)))


def ended(train_dir: Path) -> tuple[int, int, dict[str, Any]]:
    found: tuple[int, int, dict[str, Any]] = pickle.loads(Path(f"{train_dir}.state").read_bytes())
    return found


def evaluated(train_dir: Path, after: int | None = None) -> None:
    """Train as ``program`` does, with EMA and an evaluation before each epoch."""
    extensions = {} if after is None else {"kill": End(after, signal.SIGKILL)}
    data = create_dataloader(dataset())
    given = options(train_dir, extension=EMA)
    learner = train_all(given, extensions, lambda one: eval_model(data, one.tm.model, [right]))
    Path(f"{train_dir}.state").write_bytes(pickle.dumps((0, learner.tm.step_num, state_of(learner.tm))))
    learner.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> dict[str, Any]:
    """The final state of a training that was not killed."""
    train_dir = tmp_path_factory.mktemp("whole") / "run"
    assert fork_server.run(program, train_dir).code == 0
    epochs, steps, state = ended(train_dir)
    assert (epochs, steps) == (4, 24)
    return state


# Within the phase, at the end of one of its epochs and of all; within an epoch, between two, and after the last.
@pytest.mark.parametrize(
    "after", [7, 14, *(pytest.param(step, marks=pytest.mark.whole) for step in (4, 6, 12, 17, 18, 24))]
)
def test_a_killed_learner_resumes_to_the_same_bits(
    after: int, whole: dict[str, Any], tmp_path: Path, fork_server: ForkServer
) -> None:
    assert fork_server.run(program, tmp_path / "run", after).code == -signal.SIGKILL
    again = fork_server.run(program, tmp_path / "run")

    assert again.code == 0, again.errors
    epochs, steps, state = ended(tmp_path / "run")
    assert (epochs, steps, differences(whole, state)) == (4, 24, [])


@pytest.mark.whole
@pytest.mark.parametrize("after", [7, 14])
def test_evaluations_between_the_epochs_are_repeated_and_change_nothing(
    after: int, tmp_path: Path, fork_server: ForkServer
) -> None:
    assert fork_server.run(evaluated, tmp_path / "whole").code == 0
    assert fork_server.run(evaluated, tmp_path / "run", after).code == -signal.SIGKILL
    assert fork_server.run(evaluated, tmp_path / "run").code == 0

    _, steps, state = ended(tmp_path / "run")
    _, _, expected = ended(tmp_path / "whole")
    # The average of the phase's own modules: kept until Python collects them.
    assert state["extensions"]["ema"].pop("others").keys() >= expected["extensions"]["ema"].pop("others").keys()
    assert (steps, differences(expected, state)) == (24, [])


@pytest.mark.parametrize("after", [14, pytest.param(7, marks=pytest.mark.whole)])
def test_a_learner_that_is_told_to_end_saves_within_the_epoch_and_resumes_there(
    after: int, whole: dict[str, Any], tmp_path: Path, fork_server: ForkServer
) -> None:
    assert fork_server.run(program, tmp_path / "run", after, signal.SIGTERM).code == 128 + signal.SIGTERM
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    again = fork_server.run(program, tmp_path / "run")

    assert saved[-1] == f"step-{after:012}"
    assert again.code == 0, again.errors
    epochs, steps, state = ended(tmp_path / "run")
    assert (epochs, steps, differences(whole, state)) == (4, 24, [])


def leaves(train_dir: Path) -> None:
    train_all(options(train_dir))


def test_the_run_of_a_program_that_does_not_close_its_learner_ends_with_it(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    assert fork_server.run(leaves, tmp_path / "run").code == 0
    (entry,) = read_runs(tmp_path / "run")

    assert outcome_of(entry) == "completed"
    assert (entry["progress"]["epochs"], entry["progress"]["steps"]) == (4, 24)
