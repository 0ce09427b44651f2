"""Where batches come from: nothing is read ahead, and what one call leaves the next one takes up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor

from tests.support.training import At, Values, make_batches, skip_stage, stop_at, weights
from train_manager import Endless
from train_manager.data.reader import END
from train_manager.loop.feed import Feed
from train_manager.schedules import at_most
from train_manager.testing import tiny_manager


class Source:
    """Batches that note when they are made; their number is unknown if ``length`` is None."""

    def __init__(self, n: int) -> None:
        self.batches = make_batches(n)
        self.given = self.closed = self.resets = 0
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        try:
            for batch in self.batches:
                self.given += 1
                yield batch
        finally:
            self.closed += 1

    def reset(self) -> None:
        self.resets += 1

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Sized(Source):
    """The same, of known number."""

    def __len__(self) -> int:
        return len(self.batches)


def given_at(data: Source, hook: str = "pre_train_step_batch") -> tuple[At, list[int]]:
    seen: list[int] = []
    return At(hook, lambda: seen.append(data.given)), seen


# ---- nothing is read ahead -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Source, Sized])
def test_no_batch_is_made_before_its_step(kind: type[Source]) -> None:
    data = kind(3)
    note, seen = given_at(data)
    tiny_manager(note, train_data=data).train()

    assert seen == [1, 2, 3]


def test_data_may_be_made_of_the_weights_that_the_last_step_has_left() -> None:
    class OnPolicy:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            for inputs, targets in make_batches(4):
                made_with.append(weights(tm.model))
                yield inputs, targets

    made_with: list[Tensor] = []
    trained: list[Tensor] = []
    tm = tiny_manager(train_data=OnPolicy())
    tm.add_extension(post_train_step_batch=lambda: trained.append(weights(tm.model)))
    tm.train()

    assert all(torch.equal(made, left) for made, left in zip(made_with[1:], trained[:-1], strict=True))


def test_asking_for_the_last_batch_looks_one_batch_ahead() -> None:
    data = Source(3)
    note, seen = given_at(data, "post_train_step_batch")
    lasts = Values("pre_train_step_batch", "last_batch")
    tiny_manager(lasts, note, train_data=data).train()

    assert seen == [2, 3, 3]
    assert lasts.seen == [False, False, True]


def test_asking_for_the_last_batch_of_known_data_reads_nothing() -> None:
    data = Sized(3)
    note, seen = given_at(data, "post_train_step_batch")
    lasts = Values("pre_train_step_batch", "last_batch")
    tiny_manager(lasts, note, train_data=data).train()

    assert seen == [1, 2, 3]
    assert lasts.seen == [False, False, True]


def test_endless_data_has_no_last_batch_and_is_not_read_for_one() -> None:
    data = Source(2)
    note, seen = given_at(data, "post_train_step_batch")
    lasts = Values("pre_train_step_batch", "last_batch")
    tiny_manager(lasts, note, train_data=Endless(data)).train_steps(3)

    assert seen == [1, 2, 3]
    assert lasts.seen == [False] * 3


def test_a_schedule_that_runs_at_the_last_step_looks_ahead() -> None:
    data = Source(3)
    note, seen = given_at(data, "pre_train_optimizer_step")
    hook = At("pre_train_step_batch", lambda: None)
    hook.pre_train_step_batch = at_most(1)(lambda: None)  # type: ignore[attr-defined]
    tiny_manager(hook, note, train_data=data).train()

    assert seen[-1] == 3


def test_a_batch_that_was_read_ahead_is_the_first_of_the_next_call() -> None:
    data = Source(4)
    seen = Values("post_train_step_batch", "inputs", "last_batch")
    tm = tiny_manager(seen, train_data=data)
    tm.train_steps(2)
    tm.train_steps(2)

    assert all(torch.equal(x, batch[0]) for (x, _), batch in zip(seen.seen, data.batches, strict=True))
    assert data.given == 4


# ---- where an epoch ends ---------------------------------------------------------------------------------------------


def test_an_epoch_of_unknown_length_ends_as_the_next_batch_is_wanted() -> None:
    tm = tiny_manager(train_data=Source(2))
    tm.train_steps(2)
    assert tm.epoch_num == 0
    tm.train_steps(1)

    assert (tm.epoch_num, tm.step_num) == (1, 3)


def test_an_epoch_of_unknown_length_ends_at_once_if_a_hook_has_looked_ahead() -> None:
    tm = tiny_manager(Values("pre_train_step_batch", "last_batch"), train_data=Source(2))
    tm.train_steps(2)

    assert tm.epoch_num == 1


def test_an_evaluation_of_the_training_data_within_an_epoch_does_not_reset_them() -> None:
    data = Sized(3)
    tm = tiny_manager(train_data=data, eval_data={"train": data})
    with tm.run():
        tm.train_steps(1)
        before = data.resets
        tm.eval()
        within = data.resets
        result = tm.train_steps(2)

    assert within == before
    assert (result.steps, result.epochs) == (2, 1)


def test_data_is_told_its_epoch_before_its_first_batch() -> None:
    data = Source(2)
    tiny_manager(train_data=data, epochs=3).train()

    assert data.epochs == [0, 1, 2]


def test_data_that_continues_is_not_told_an_epoch_again() -> None:
    data = Source(3)
    tm = tiny_manager(train_data=data)
    tm.train_steps(2)
    tm.train_steps(1)

    assert data.epochs == [0]


def test_data_that_is_left_is_closed_also_while_the_error_is_kept() -> None:
    data = Sized(3)
    tm = tiny_manager(At("post_train_step_batch", lambda batch_num: 1 / (2 - batch_num)), train_data=data)
    with pytest.raises(ZeroDivisionError) as kept:
        tm.train()

    assert data.closed == 1
    assert kept.value is not None


def test_skipped_batches_are_counted_in_the_epoch_but_not_as_steps() -> None:
    counts = Values("pre_train_step_batch", "batch_num", "step_num")
    skips = At("pre_train_step_batch", lambda batch_num: skip_stage() if batch_num == 2 else None)
    tiny_manager(counts, skips).train()

    assert counts.seen == [(1, 0), (2, 1), (3, 1)]


def test_an_epoch_whose_batches_are_all_skipped_is_complete() -> None:
    tm = tiny_manager(At("pre_train_step_batch", skip_stage), epochs=2)
    result = tm.train()

    assert (result.epochs, result.steps, result.updates) == (2, 0, 0)


def test_data_that_gives_fewer_batches_than_it_says_is_warned_of() -> None:
    data = Sized(3)
    tm = tiny_manager(train_data=data)
    data.__class__ = type("Wrong", (Sized,), {"__len__": lambda self: 4})
    with pytest.warns(RuntimeWarning) as warned:
        tm.train()

    assert [str(one.message) for one in warned] == [
        "train_data says len() = 4 but gave 3 batches, so `last_batch` was wrong"
    ]


# ---- epochs of so many steps -----------------------------------------------------------------------------------------


def test_data_that_gives_more_batches_than_it_says_is_trained_on_whole_and_warned_of() -> None:
    class Longer(list[Any]):
        def __len__(self) -> int:
            return 2

    tm = tiny_manager(train_data=Longer(make_batches(3)))
    with pytest.warns(RuntimeWarning, match=r"train_data says len\(\) = 2 but gave 3 batches"):
        result = tm.train()

    assert (result.steps, result.epochs) == (3, 1)


def test_endless_data_is_cut_into_epochs() -> None:
    seen = Values("post_train_step_batch", "batch_num", "last_batch")
    data = Source(3)
    tiny_manager(seen, train_data=data, steps_per_epoch=2, epochs=2).train()

    assert seen.seen == [(1, False), (2, True), (1, False), (2, True)]
    assert data.given == 4


def test_an_epoch_of_so_many_steps_continues_where_the_last_one_ended() -> None:
    inputs = Values("post_train_step_batch", "inputs")
    data = Source(3)
    tiny_manager(inputs, train_data=data, steps_per_epoch=2, epochs=2).train()

    order = [0, 1, 2, 0]
    assert all(torch.equal(x, data.batches[i][0]) for x, i in zip(inputs.seen, order, strict=True))


def test_a_stop_does_not_turn_back_data_that_is_cut_by_steps() -> None:
    inputs = Values("post_train_step_batch", "inputs")
    data = Source(3)
    tm = tiny_manager(inputs, stop_at("post_train_step_batch"), train_data=data, steps_per_epoch=3)
    tm.train_epochs(1)
    tm.train_epochs(1)

    assert torch.equal(inputs.seen[1], data.batches[1][0])


def test_a_pass_that_is_cut_by_steps_goes_on_after_a_signal() -> None:
    data = Source(3)
    feed = Feed()
    feed.begin(data, 2, 0)
    feed.pull()
    feed.leave_until_exit()
    feed.begin(data, 2, 1)

    assert feed.pull() is data.batches[1]


def test_a_pass_that_gives_nothing_more_ends_the_epoch_with_a_warning() -> None:
    made = iter(make_batches(3))
    tm = tiny_manager(train_data=made, steps_per_epoch=2)
    tm.train_epoch()
    with pytest.warns(RuntimeWarning, match="train_data ended after 1 of 2 batches of an epoch"):
        tm.train_epoch()


def test_epochs_of_so_many_steps_and_whole_passes_share_no_pass() -> None:
    data = Source(3)
    tm = tiny_manager(train_data=data)
    tm.train_epochs(1)
    tm.steps_per_epoch = 2
    tm.train_epochs(2)
    tm.steps_per_epoch = None
    tm.train_epochs(1)

    assert data.epochs == [0, 0, 1, 3]
    assert data.given == 3 + 4 + 3


def test_numbers_without_end_are_cut_too() -> None:
    batches = make_batches(1)
    tm = tiny_manager(train_data=(batches[0] for _ in count()), steps_per_epoch=2, epochs=2)
    result = tm.train()

    assert (result.steps, result.epochs) == (4, 2)


# ---- how long batches are waited for ---------------------------------------------------------------------------------


class Slow:
    """Batches that take so many seconds each, of a clock that only they move."""

    def __init__(self, clock: list[float], *seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.batches = make_batches(len(seconds))

    def __iter__(self) -> Iterator[Any]:
        for batch, seconds in zip(self.batches, self.seconds, strict=True):
            self.clock[0] += seconds
            yield batch


class SizedSlow(Slow):
    def __len__(self) -> int:
        return len(self.batches)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("train_manager.loop.feed.perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize("kind", [Slow, SizedSlow])
@pytest.mark.parametrize("others", [(), ("last_batch",)])
def test_a_hook_is_told_how_long_each_batch_was_waited_for(
    clock: list[float], kind: type[Slow], others: tuple[str, ...]
) -> None:
    seen = Values("post_train_step_batch", *others, "data_seconds")
    tm = tiny_manager(seen, train_data=kind(clock, 1.0, 2.0, 4.0), epochs=2)
    tm.train()

    assert [values[-1] if others else values for values in seen.seen] == [1.0, 2.0, 4.0] * 2


def test_epochs_that_are_cut_by_steps_are_clocked(clock: list[float]) -> None:
    seen = Values("pre_train_step_batch", "data_seconds")
    tiny_manager(seen, train_data=Slow(clock, 1.0, 2.0, 4.0), epochs=2, steps_per_epoch=2).train()

    assert seen.seen == [1.0, 2.0, 4.0, 1.0]


@pytest.mark.parametrize("kind", [Slow, SizedSlow])
def test_an_epoch_that_continues_in_another_call_is_clocked(clock: list[float], kind: type[Slow]) -> None:
    seen = Values("pre_train_step_batch", "data_seconds")
    tm = tiny_manager(seen, train_data=kind(clock, 1.0, 2.0, 4.0))
    tm.train_steps(1)
    tm.train_steps(2)

    assert seen.seen == [1.0, 2.0, 4.0]


def test_nothing_is_clocked_if_no_hook_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr("train_manager.loop.feed.perf_counter", lambda: calls.append(None))
    unknown: list[float] = []
    read = At("post_train_step_batch", lambda fixtures: unknown.append(fixtures["data_seconds"]))
    tiny_manager(read).train()

    assert calls == []
    assert [math.isnan(seconds) for seconds in unknown] == [True] * 3


def test_a_batch_of_ones_own_was_not_waited_for() -> None:
    seen = Values("post_train_step_batch", "data_seconds")
    tm = tiny_manager(seen)
    tm.train_on_batch(make_batches(1)[0])

    assert math.isnan(seen.seen[0])


def test_a_clock_keeps_no_batch_alive() -> None:
    alive: list[ref[Any]] = []

    def data() -> Iterator[Any]:
        for inputs, targets in make_batches(3):
            copied = inputs.clone()
            assert not [one for one in alive if one() is not None], "an earlier batch is alive"
            alive.append(ref(copied))
            yield copied, targets
            del copied

    feed = Feed()
    feed.begin(data(), None, 0, is_clocked=True)
    while feed.pull() is not END:
        pass

    assert len(alive) == 3
