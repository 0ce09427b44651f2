"""Data that fails or is empty within an epoch; how epochs are cut is in tests/test_loops_of_your_own.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.training import Batch, make_batches
from train_manager import InputError
from train_manager.testing import tiny_manager


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


def test_data_that_is_empty_is_told_also_where_other_data_was_left_half_way() -> None:
    tm = tiny_manager(eval_data=None)
    tm.train_steps(2)
    tm.train_data = []
    with pytest.raises(InputError, match="train_data gave no batch in epoch 1"):
        tm.train_epochs(1)
