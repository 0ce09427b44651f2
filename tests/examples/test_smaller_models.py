"""The example ``examples/smaller_models.py``: int8 weights and low rank beside the whole network."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from examples import smaller_models as example

pytest.importorskip("sklearn")
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="make exports installs it")


@needs_torchao
@pytest.mark.slow
def test_int8_weights_take_less_than_a_third_of_the_bytes_and_half_a_point_at_most() -> None:
    found = example.int8(example.linear, seed=0)

    assert found.share <= 0.32
    assert found.whole > 90
    assert found.smaller >= found.whole - 0.5


@pytest.mark.slow
@pytest.mark.whole
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


@needs_torchao
@pytest.mark.slow
def test_the_program_prints_a_row_for_each_network_and_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"EPOCHS": 1, "SEEDS": 1, "MORE": (1,)}.items():
        monkeypatch.setattr(example, name, value)
    example.main()

    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:28].strip() for row in rows] == [
        "int8, Linear layers",
        "low rank + 1, Linear layers",
        "int8, convolutions",
        "low rank + 1, convolutions",
    ]
