"""Rows of the capabilities that schedules on hooks fulfil; to be moved into the files of their seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from train_manager import (
    Extension,
    SkipBatch,
    SkipStage,
    TrainManager,
    at_most,
    every,
    exponentially,
    once,
    periodically,
    scheduled,
    when,
)
from train_manager.due import Schedule
from train_manager.extensions import LossCurves
from train_manager.testing import tiny_manager

# ---- test_gomlx.py -------------------------------------------------------------------------------------------------


class StepsRun(Extension):
    def __init__(self) -> None:
        self.at: list[int] = []

    def post_train_step_batch(self, step_num: int) -> None:
        self.at.append(step_num)


def steps_run(schedule: Schedule, steps: int) -> list[int]:
    """The steps, of so many, at which a hook runs."""
    watcher = scheduled(StepsRun(), "post_train_step_batch", schedule)
    tiny_manager(watcher, train_data=tiny_manager().train_data, steps_per_epoch=steps, eval_data=None).train()
    return watcher.at


def test_g10_every_n_steps_is_not_at_the_last_step_except_by_coincidence() -> None:
    assert steps_run(every(3), 10) == [3, 6, 9]
    assert steps_run(every(3), 9) == [3, 6, 9]


def test_g11_at_most_n_times_is_split_evenly_and_always_at_the_very_last_step() -> None:
    assert steps_run(at_most(5), 100) == [20, 40, 60, 80, 100]
    assert steps_run(at_most(5), 3) == [1, 2, 3]


def test_g12_with_an_unknown_end_it_is_uneven_and_may_be_more_than_n() -> None:
    class UnknownLength:
        def __iter__(self) -> Any:
            return iter(batches * 4)

    batches: Any = list(tiny_manager().train_data or ())
    watcher = scheduled(StepsRun(), "post_train_step_batch", at_most(3))
    tiny_manager(watcher, train_data=UnknownLength(), epochs=1).train()
    assert watcher.at == [1, 2, 4, 12]


def test_g13_in_a_second_run_it_is_evenly_again() -> None:
    watcher = scheduled(StepsRun(), "post_train_step_batch", at_most(3))
    tm = tiny_manager(watcher)
    tm.train_epochs(2)
    tm.train_epochs(3)
    assert watcher.at == [2, 4, 6, 9, 12, 15]


def test_g14_exponentially_from_100_by_1_2_is_100_220_364_and_the_end_is_once() -> None:
    assert steps_run(exponentially(100, 1.2), 400) == [100, 220, 364]
    assert steps_run(exponentially(100, 1.2, at_end=True), 370) == [100, 220, 364, 370]
    assert steps_run(exponentially(100, 1.2, at_end=True), 364) == [100, 220, 364]


def test_g15_periodically_counts_after_the_hooks_own_run_and_leaves_out_pauses() -> None:
    now = 0.0

    def clock() -> float:
        return now

    class Slow(StepsRun):
        def pre_train_step_batch(self) -> None:
            nonlocal now
            now += 1

        @periodically(4, clock=clock)
        def post_train_step_batch(self, step_num: int) -> None:
            nonlocal now
            now += 100
            super().post_train_step_batch(step_num)

    slow = Slow()
    tm = tiny_manager(slow)
    tm.train_epochs(3)
    now += 1000
    tm.train_epochs(2)
    assert slow.at == [4, 8, 12]


def test_g15_periodically_may_run_at_the_end_too() -> None:
    watcher = scheduled(StepsRun(), "post_train_step_batch", periodically(60, at_end=True, clock=lambda: 0.0))
    tiny_manager(watcher, epochs=2).train()
    assert watcher.at == [6]


# ---- test_axon.py --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedules", "at"),
    [
        ([], [1, 2, 3, 4, 5, 6]),  # always
        ([once], [1]),
        ([every(2)], [2, 4, 6]),
        ([when(lambda step_num: step_num == 3)], [3]),  # only
        ([when(lambda step_num, epoch_num: (step_num + epoch_num) % 3 == 0)], [3, 5]),  # function
    ],
)
def test_a25_filters_are_always_once_every_n_only_and_a_function(schedules: list[Schedule], at: list[int]) -> None:
    watcher = StepsRun()
    if schedules:
        scheduled(watcher, "post_train_step_batch", *schedules)
    tiny_manager(watcher, epochs=2).train()
    assert watcher.at == at


# ---- test_fluxtraining (F33) ---------------------------------------------------------------------------------------


def test_f33_a_hook_is_throttled_by_steps_or_by_seconds() -> None:
    now = 0.0

    def tick() -> None:
        nonlocal now
        now += 10

    seldom = scheduled(StepsRun(), "post_train_step_batch", every(4))
    each_minute = scheduled(StepsRun(), "post_train_step_batch", periodically(60, clock=lambda: now))
    clock = Extension.of(pre_train_step_batch=tick)
    tiny_manager(**{"extensions": {"clock": clock, "seldom": seldom, "minute": each_minute}}, epochs=5).train()
    assert seldom.at == [4, 8, 12]
    assert each_minute.at == [6, 12]


def test_f33_a_shipped_extension_takes_a_throttle(tmp_path: Path) -> None:
    curves = LossCurves(update=every(4))
    tiny_manager(curves, epochs=2, train_dir=tmp_path).train()
    assert curves.training["batch"].x == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "plots" / "loss_curves.png").exists()


def test_f33_a_step_and_a_run_can_be_left_early() -> None:
    class Leaving(Extension):
        def post_train_loss_forward(self, loss: Tensor, step_num: int, train_manager: TrainManager) -> None:
            if step_num == 4:
                train_manager.stop("enough")

        @once
        def pre_train_step_batch(self) -> None:
            raise SkipBatch

    watcher = StepsRun()
    tm = tiny_manager(Leaving(), watcher, epochs=9)
    tm.train()
    assert watcher.at == [1, 2, 3, 4, 5]
    assert tm.stop_reason == "enough"


def test_f33_an_epoch_can_be_left_out_by_a_hook_with_a_schedule() -> None:
    class SkipSecondEpoch(Extension):
        @every(2)
        def pre_train_step_epoch(self) -> None:
            raise SkipStage

    watcher = StepsRun()
    tm = tiny_manager(SkipSecondEpoch(), watcher, epochs=3)
    tm.train()
    assert watcher.at == [1, 2, 3, 4, 5, 6]
    assert tm.epoch_num == 2
