"""Schedules in the training of a TrainManager, which know its progress."""

from __future__ import annotations

import pytest

from train_manager import Extension, TrainManager, at_most, once, scheduled
from train_manager.core.schedule import Schedule
from train_manager.testing import tiny_manager


class Steps(Extension):
    """Records the steps at which its hooks ran, counted from 1."""

    def __init__(self) -> None:
        self.pre: list[int] = []
        self.post: list[int] = []
        self.epochs: list[int] = []
        self.evals: list[int] = []

    def pre_train_step_batch(self, step_num: int) -> None:
        self.pre.append(step_num + 1)

    def post_train_step_batch(self, step_num: int) -> None:
        self.post.append(step_num)

    def post_train_step_epoch(self, step_num: int) -> None:
        self.epochs.append(step_num)

    def post_eval(self, step_num: int) -> None:
        self.evals.append(step_num)


def trained(schedule: Schedule, *others: Extension, hook: str = "post_train_step_batch", epochs: int = 4) -> Steps:
    """Train with three steps per epoch and a schedule on one hook; return the steps at which it ran."""
    steps = scheduled(Steps(), hook, schedule)
    tiny_manager(steps, *others, epochs=epochs).train()
    return steps


def stopping_at(step: int) -> Extension:
    def stop(step_num: int, train_manager: TrainManager) -> None:
        if step_num == step:
            train_manager.stop("enough")

    return Extension.of(post_train_step_batch=stop)


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_step_batch"])
def test_at_most_n_is_exactly_n_if_the_end_is_known(hook: str) -> None:
    steps = trained(at_most(5), hook=hook, epochs=10)
    assert getattr(steps, hook.partition("_")[0]) == [6, 12, 18, 24, 30]


def test_at_most_on_an_epochs_hook_is_at_the_end_of_epochs() -> None:
    assert trained(at_most(2), hook="post_train_step_epoch").epochs == [6, 12]


def test_at_most_runs_at_the_last_step_if_an_earlier_hook_stops_the_run() -> None:
    steps = scheduled(Steps(), "post_train_step_batch", at_most(2))
    tiny_manager(stopping_at(5), steps, epochs=10).train()
    assert steps.post == [5]


def test_a_skipped_batch_does_not_make_a_hook_run_twice() -> None:
    from train_manager import SkipBatch

    def skip(step_num: int) -> None:
        if step_num == 1:
            raise SkipBatch

    steps = scheduled(Steps(), "post_train_step_batch", at_most(12))
    tiny_manager(Extension.of(pre_train_step_batch=once(skip)), steps, epochs=4).train()
    assert steps.post == sorted(set(steps.post))


def test_once_is_once_in_two_runs() -> None:
    steps = scheduled(Steps(), "post_eval", once)
    tm = tiny_manager(steps)
    tm.train()
    tm.train_epochs(1)
    assert steps.evals == [0]
