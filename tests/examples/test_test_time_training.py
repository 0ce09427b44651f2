"""The example ``examples/test_time_training.py``: what adapting without labels recovers."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn")

from examples import test_time_training as example


@pytest.mark.whole
@pytest.mark.slow
def test_the_statistics_of_the_batches_recover_faint_and_noisy_digits() -> None:
    found = example.accuracies(seed=0, epochs=6)

    plain, adapted = found["as it is"], found["statistics"]
    assert adapted["clean"] > plain["clean"] - 0.005
    assert adapted["noise"] > plain["noise"] + 0.03
    assert adapted["faint"] > 0.8 > plain["faint"]
    assert adapted["inverted"] <= plain["inverted"]


def test_the_table_has_a_row_for_each_way_and_a_column_for_each_set() -> None:
    one = {"as it is": {"clean": 0.9, "noise": 0.5}, "entropy": {"clean": 0.8, "noise": 0.6}}
    other = {"as it is": {"clean": 0.9, "noise": 0.7}, "entropy": {"clean": 0.8, "noise": 0.6}}

    assert [line.split() for line in example.table([one, other]).splitlines()] == [
        ["clean", "noise"],
        ["as", "it", "is", "0.900", "±0.000", "0.600", "±0.141"],
        ["entropy", "0.800", "±0.000", "0.600", "±0.000"],
    ]
