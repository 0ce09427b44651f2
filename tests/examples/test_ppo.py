"""The example ``examples/ppo.py``: several epochs of minibatches for each batch, and data played by the policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import Tensor

from examples import ppo as example
from tests.examples.comparison import Trained, assert_equal, by_hand, by_manager
from tests.examples.twins import ppo as twin
from train_manager import Extension, TrainManager


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ROLLOUTS": 3, "LENGTH": 16, "MINIBATCH": 32, "LOG_EVERY": 1}.items():
            patch.setattr(example, name, value)
            patch.setattr(twin, name, value)
        yield


def trained() -> Trained:
    """Train the manager; the losses are those of all its steps, of which a batch has several."""
    losses: list[Tensor] = []

    def make() -> TrainManager:
        tm = example.manager()
        tm.add_extension(Extension.of(post_train_backward=lambda backward_loss: losses.append(backward_loss.detach())))
        return tm

    return by_manager(make)._replace(losses=losses)


def test_it_trains_and_prints_as_the_loop_by_hand_does() -> None:
    found = trained()

    assert_equal(found, by_hand(twin.train))
    assert len(found.losses) == 3 * 4 * 4
