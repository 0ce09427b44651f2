"""Runs that are held open, what continues in them, and where the counts of a run begin."""

from __future__ import annotations

import pytest
import torch

from tests.support.training import At, Values, make_batches
from train_manager import Extension, TrainManager, modifies
from train_manager.errors import StageError
from train_manager.extensions import Accumulate
from train_manager.testing import Recorder, tiny_manager


class Loads(Extension):
    """Sets the counts as a checkpoint of one epoch would."""

    def __init__(self, epoch_num: int) -> None:
        self.epoch_num = epoch_num

    def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
        train_manager.epoch_num = self.epoch_num
        train_manager.step_num = 3 * self.epoch_num
        train_manager.samples_seen = 40 * self.epoch_num


def test_a_run_that_was_opened_is_joined_until_it_is_closed() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    tm.open()
    tm.train_steps(1)
    tm.eval()
    tm.predict(torch.rand(1, 2))
    tm.close()

    assert recorder.stages.count("run") == 1
    assert recorder.hooks[-1] == "post_run"


def test_a_window_resumes_from_call_to_call_in_a_run_that_was_opened() -> None:
    tm = tiny_manager(Accumulate(2))
    tm.open()
    for batch in make_batches(2):
        tm.train_on_batch(batch)
    tm.close()

    assert tm.update_num == 1


def test_a_second_run_is_not_opened_in_the_first() -> None:
    tm = tiny_manager()
    tm.open()
    with pytest.raises(StageError) as caught:
        tm.open()
    tm.close()

    assert str(caught.value).splitlines()[0] == "open() cannot be called inside stage 'run'"


def test_to_close_what_is_not_open_does_nothing() -> None:
    tm = tiny_manager()
    tm.close()
    tm.open()
    tm.close()
    tm.close()

    assert "run" not in tm.fixtures.path


def test_a_run_that_was_opened_outlives_an_error() -> None:
    tm = tiny_manager(At("pre_train_step_batch", lambda step_num: 1 / (1 - step_num)))
    tm.open()
    with pytest.raises(ZeroDivisionError):
        tm.train()
    left_open = "run" in tm.fixtures.path
    tm.close()

    assert left_open
    assert "run" not in tm.fixtures.path


def test_a_run_whose_opening_fails_is_not_open() -> None:
    tm = tiny_manager(At("pre_run", lambda model: 1 / 0))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            tm.open()

    assert tm.fixtures.path == ()


def test_epochs_are_counted_after_a_checkpoint_is_loaded() -> None:
    tm = tiny_manager(Loads(2), epochs=3)
    evals = Values("pre_eval", "epoch_num")
    tm.add_extension(evals)
    result = tm.train()

    assert (result.epochs, tm.epoch_num) == (1, 3)
    assert (tm.step_num, tm.samples_seen) == (9, 120)
    assert evals.seen == [3]


def test_samples_are_those_of_all_processes() -> None:
    class TwoProcesses(Extension):
        @modifies("global_batch_size")
        def pre_train_model_forward(self, global_batch_size: int) -> int:
            return 2 * global_batch_size

    seen = Values("post_train_step_batch", "samples_seen", "true_batch_size")
    tm = tiny_manager(TwoProcesses(), seen)
    tm.train()

    assert seen.seen == [(32, 16), (64, 16), (80, 8)]
    assert tm.samples_seen == 80
