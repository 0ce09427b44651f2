"""The example ``examples/fixmatch.py``: two loaders side by side, and a model that labels what it is sure of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from examples import fixmatch as example
from tests.examples.comparison import assert_equal, by_hand, by_manager
from tests.examples.twins import fixmatch as twin


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"EPOCHS": 2, "STEPS": 20, "LOG_EVERY": 10}.items():
            patch.setattr(example, name, value)
            patch.setattr(twin, name, value)
        yield


def test_it_trains_and_prints_as_the_loop_by_hand_does() -> None:
    assert_equal(by_manager(example.manager), by_hand(lambda record: twin.train(record)[0]))


def test_its_average_is_that_of_the_loop_by_hand_but_for_rounding() -> None:
    torch.manual_seed(0)
    tm = example.manager()
    tm.train()
    average = by_hand(lambda record: twin.train(record)[1]).weights

    # Not bit for bit: by hand it is the sum of two products, where EMA moves it by a share of the difference.
    assert all(torch.allclose(tensor, average[name], atol=1e-6) for name, tensor in tm["ema"].average.items())
    assert not torch.allclose(tm.model[0].weight, average["0.weight"], atol=1e-3)
