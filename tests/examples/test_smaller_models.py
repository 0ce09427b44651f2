"""The example ``examples/smaller_models.py``: int8 weights and low rank beside the whole network, with fewer epochs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from examples import smaller_models as example

pytest.importorskip("sklearn")
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="make exports installs it")


@pytest.fixture(autouse=True, scope="module")
def few_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "EPOCHS", 6)
        patch.setattr(example, "SEEDS", 1)
        patch.setattr(example, "MORE", (1,))
        yield


@needs_torchao
@pytest.mark.slow
def test_int8_weights_take_less_than_a_third_of_the_bytes_and_half_a_point_at_most() -> None:
    found = example.int8(example.linear, seed=0)

    assert found.share <= 0.32
    assert found.whole > 90
    assert found.smaller >= found.whole - 0.5


@pytest.mark.slow
def test_half_of_the_parameters_are_as_accurate_after_one_more_epoch_to_half_a_point() -> None:
    found = example.low_rank(example.linear, seed=0)

    assert found.share <= 0.5
    assert found.whole > 90
    assert found.smaller >= found.whole - 0.5


@needs_torchao
@pytest.mark.slow
def test_convolutions_keep_their_bytes() -> None:
    assert 0.85 < example.int8(example.convolutional, seed=0).share < 1


def test_a_row_has_the_means_over_the_seeds_and_the_worst_of_them() -> None:
    found = [example.Compared(0.25, 98.0, 97.5), example.Compared(0.35, 96.0, 96.5)]

    assert example.row("int8", found).split() == ["int8", "0.30", "97.00", "97.00", "+0.00", "-0.50"]
