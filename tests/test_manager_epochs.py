"""How data is cut into epochs, and which batch of an epoch is the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
import torch

from tests.support.training import At, Batch, Values, make_batches
from train_manager import InputError
from train_manager.testing import tiny_manager


def endless() -> Iterator[Batch]:
    while True:
        yield from make_batches(4)


class Again:
    """Four batches, without a length, again and again; counts how many were made."""

    made = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in make_batches(4):
            self.made += 1
            yield batch


def test_a_generator_without_end_is_cut_into_epochs() -> None:
    tm = tiny_manager(train_data=endless(), steps_per_epoch=3, epochs=2)
    tm.train()

    assert (tm.epoch_num, tm.step_num) == (2, 6)


@pytest.mark.parametrize("data", [endless, lambda: make_batches(4), Again])
def test_an_epoch_continues_where_the_last_one_stopped(data: Callable[[], Iterable[Batch]]) -> None:
    batches = Values("post_train_step_batch", "inputs")
    tm = tiny_manager(batches, train_data=data(), steps_per_epoch=3)
    tm.train_epochs(1)
    tm.train_epochs(1)
    expected = [make_batches(4)[n % 4][0] for n in range(6)]

    assert all(torch.equal(a, b) for a, b in zip(batches.seen, expected, strict=True))


def test_the_last_batch_of_so_many_steps_is_known() -> None:
    last = Values("pre_train_step_batch", "last_batch")
    tiny_manager(last, train_data=endless(), steps_per_epoch=3, epochs=2).train()

    assert last.seen == [False, False, True] * 2


def test_an_epoch_that_ends_before_so_many_steps_warns() -> None:
    message = "train_data ended after 1 of 3 batches of an epoch, so `last_batch` was wrong"
    tm = tiny_manager(train_data=iter(make_batches(1)), steps_per_epoch=3)
    with pytest.warns(RuntimeWarning, match=message):
        tm.train()

    assert (tm.step_num, tm.epoch_num) == (1, 1)


def test_nothing_is_read_ahead_of_so_many_steps() -> None:
    data = Again()
    tiny_manager(train_data=data, steps_per_epoch=3).train()

    assert data.made == 3


def test_a_stream_that_failed_is_started_anew() -> None:
    class FailsOnce:
        has_failed = False

        def __iter__(self) -> Iterator[Batch]:
            yield make_batches(1)[0]
            if not self.has_failed:
                self.has_failed = True
                raise OSError("no disk")

    tm = tiny_manager(train_data=FailsOnce(), steps_per_epoch=2)
    with pytest.raises(OSError, match="no disk"):
        tm.train()
    tm.train()

    assert tm.step_num == 3


@pytest.mark.parametrize("data", [lambda: make_batches(3), Again])
def test_the_last_batch_of_an_epoch_is_known(data: Callable[[], Iterable[Batch]]) -> None:
    last = Values("pre_train_step_batch", "last_batch")
    tm = tiny_manager(last, train_data=data())
    tm.train()

    assert last.seen == [False] * (tm.step_num - 1) + [True]


def test_a_wrong_length_of_the_training_data_warns() -> None:
    class Wrong(Again):
        def __len__(self) -> int:
            return 5

    message = r"train_data says len\(\) = 5 but gave 4 batches, so `last_batch` was wrong"
    with pytest.warns(RuntimeWarning, match=message):
        tiny_manager(train_data=Wrong()).train()


def test_no_batch_is_made_ahead_of_its_turn_where_the_length_is_known() -> None:
    class Known(Again):
        def __len__(self) -> int:
            return 4

    data = Known()
    made: list[int] = []
    tiny_manager(At("post_train_step_batch", lambda: made.append(data.made)), train_data=data).train()

    assert made == [1, 2, 3, 4]


def test_data_that_is_empty_is_told_also_where_other_data_was_left_half_way() -> None:
    tm = tiny_manager(eval_data=None)
    tm.train_steps(2)
    tm.train_data = []
    with pytest.raises(InputError, match="train_data gave no batch in epoch 1"):
        tm.train_epochs(1)
