"""The example ``examples/diffusion.py``: a model that makes its own loss, and the average of its weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from examples import diffusion as example
from tests.examples.comparison import assert_equal, by_hand, by_manager
from tests.examples.twins import diffusion as twin


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STEPS": 60, "SAMPLE_EVERY": 30, "LOG_EVERY": 20}.items():
            patch.setattr(example, name, value)
            patch.setattr(twin, name, value)
        yield


def test_it_trains_and_prints_as_the_loop_by_hand_does() -> None:
    assert_equal(by_manager(example.manager), by_hand(lambda record: twin.train(record)[0]))


def test_its_average_is_that_of_the_loop_by_hand() -> None:
    torch.manual_seed(0)
    tm = example.manager()
    tm.train()
    average = by_hand(lambda record: twin.train(record)[1]).weights

    assert all(torch.equal(tensor, average[name]) for name, tensor in tm["ema"].average.items())
    assert not all(torch.equal(tensor, average[name]) for name, tensor in tm.model.state_dict().items())
