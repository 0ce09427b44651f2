"""The example ``examples/hidden_state.py``."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from examples import hidden_state as example
from tests.examples.comparison import Trained, assert_equal, by_manager
from train_manager import TrainManager


@pytest.fixture(scope="module")
def trained() -> Trained:
    return by_manager(example.manager)


def test_the_rate_falls_after_an_epoch_without_a_lower_validation_loss(trained: Trained) -> None:
    losses = [float(line.split("valid: loss ")[1]) for line in trained.lines if "valid" in line]
    rates = [float(line.split("rate ")[1]) for line in trained.lines if "rate" in line][::2]  # two lines an epoch

    assert [rate == before for before, rate in pairwise(rates)] == [
        loss < min(losses[:epoch], default=inf) for epoch, loss in enumerate(losses[:-1])
    ]
    # Whether one rises depends on the last bits of the machine's arithmetic, so nothing is said of the last rate.


def test_an_evaluation_in_the_middle_of_an_epoch_leaves_the_hidden_state_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)

    def evaluating_often() -> TrainManager:
        tm = example.manager()
        tm.remove_extension("log")
        tm.remove_extension("lr_schedule")  # which would count the evaluations
        if is_often:
            tm.add_extension(post_train_step_batch=lambda train_manager: train_manager.eval_soon())
        return tm

    is_often = False
    seldom = by_manager(evaluating_often)
    is_often = True
    often = by_manager(evaluating_often)

    assert_equal(often._replace(lines=[]), seldom._replace(lines=[]))
