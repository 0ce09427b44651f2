"""Schedules in the training of a TrainManager, which know its progress."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extension, TrainManager, at_most, every, exponentially, once, periodically, scheduled, when
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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


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


def test_progress_counts_the_present_step_in_pre_and_post_hooks_alike() -> None:
    seen: dict[str, list[Any]] = {"pre": [], "post": []}

    def look(at: str) -> Any:
        def hook(train_manager: Any) -> None:
            progress = train_manager.progress
            seen[at].append((progress.done, progress.total, progress.is_last))

        return hook

    watcher = Extension.of(pre_train_step_batch=look("pre"), post_train_step_batch=look("post"))
    tiny_manager(watcher, epochs=2).train()
    assert seen["pre"] == seen["post"]
    assert [done for done, _, _ in seen["post"]] == [1, 2, 3, 4, 5, 6]
    assert [is_last for _, _, is_last in seen["post"]] == [False] * 5 + [True]
    assert seen["post"][-1][1] == 6


def test_each_training_call_has_another_number_and_counts_from_one() -> None:
    seen: list[Any] = []
    tm: Any = tiny_manager(epochs=2)
    tm.add_extension(post_train_step_batch=lambda train_manager: seen.append(train_manager.progress))
    tm.train_epochs(1)
    tm.train_epochs(1)
    assert [progress.done for progress in seen] == [1, 2, 3, 1, 2, 3]
    assert len({progress.run for progress in seen}) == 2


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_step_batch"])
def test_at_most_n_is_exactly_n_if_the_end_is_known(hook: str) -> None:
    steps = trained(at_most(5), hook=hook, epochs=10)
    assert getattr(steps, hook.partition("_")[0]) == [6, 12, 18, 24, 30]


def test_at_most_on_an_epochs_hook_is_at_the_end_of_epochs() -> None:
    assert trained(at_most(2), hook="post_train_step_epoch").epochs == [6, 12]


def test_at_most_is_even_again_in_a_second_run_of_a_manager() -> None:
    steps = scheduled(Steps(), "post_train_step_batch", at_most(3))
    tm = tiny_manager(steps, epochs=3)
    tm.train()
    tm.train_epochs(2)
    assert steps.post == [3, 6, 9, 11, 13, 15]


def test_at_most_runs_at_the_last_step_if_an_earlier_hook_stops_the_run() -> None:
    steps = scheduled(Steps(), "post_train_step_batch", at_most(2))
    tiny_manager(stopping_at(5), steps, epochs=10).train()
    assert steps.post == [5]


def test_with_data_of_unknown_length_at_most_begins_with_1_2_4_and_ends_at_the_last_step() -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(batches)

    batches: Any = tiny_manager().train_data
    steps = scheduled(Steps(), "post_train_step_batch", at_most(4))
    tiny_manager(steps, train_data=Stream(), epochs=8).train()
    assert steps.post[:2] == [1, 2]
    assert steps.post[-1] == 24
    assert len(steps.post) <= 5


def test_a_skipped_batch_does_not_make_a_hook_run_twice() -> None:
    from train_manager import SkipBatch

    def skip(step_num: int) -> None:
        if step_num == 1:
            raise SkipBatch

    steps = scheduled(Steps(), "post_train_step_batch", at_most(12))
    tiny_manager(Extension.of(pre_train_step_batch=once(skip)), steps, epochs=4).train()
    assert steps.post == sorted(set(steps.post))


def test_exponentially_with_at_end_runs_at_the_last_step_once() -> None:
    assert trained(exponentially(2, 2, at_end=True)).post == [2, 6, 12]
    assert trained(exponentially(2, 2, at_end=True), epochs=2).post == [2, 6]


def test_periodically_leaves_out_the_time_between_two_runs() -> None:
    clock = Clock()

    def tick(step_num: int) -> None:
        clock.now += 1

    steps = scheduled(Steps(), "post_train_step_batch", periodically(3, clock=clock))
    tm = tiny_manager(Extension.of(post_train_step_batch=tick), steps, epochs=1)
    tm.train()
    clock.now += 1000
    tm.train_epochs(1)
    assert steps.post == [3, 6]


def test_once_is_once_in_two_runs() -> None:
    steps = scheduled(Steps(), "post_eval", once)
    tm = tiny_manager(steps)
    tm.train()
    tm.train_epochs(1)
    assert steps.evals == [0]


def test_when_reads_the_fixtures_of_the_loop() -> None:
    assert trained(when(lambda step_num: step_num > 10)).post == [11, 12]


def test_every_continues_in_another_manager_from_a_state_taken_in_the_middle() -> None:
    first = trained(every(5), epochs=1)
    second = scheduled(Steps(), "post_train_step_batch", every(5))
    second.load_state_dict(first.state_dict())
    tiny_manager(second, epochs=1).train()
    assert second.post == [2]


def test_a_schedule_does_not_change_what_is_trained() -> None:
    plain, watched = (
        tiny_manager(epochs=2),
        tiny_manager(scheduled(Steps(), "post_train_step_batch", every(2)), epochs=2),
    )
    plain.train()
    watched.train()
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert one.equal(other)


def test_an_extension_of_one_manager_after_another_runs_at_each_end() -> None:
    ran: list[int] = []

    class AtTheEnd(Extension):
        @exponentially(9, 2, at_end=True)
        def post_train_step_batch(self, step_num: int) -> None:
            ran.append(step_num)

    extension = AtTheEnd()
    for _ in range(2):
        tiny_manager(extension).train()
    assert ran == [3, 3]
