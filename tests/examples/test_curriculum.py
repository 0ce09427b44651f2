"""The example ``examples/curriculum.py``: a teacher that leaves pure noise alone."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn")

from examples import curriculum as example


@pytest.mark.whole
@pytest.mark.slow
def test_noise_is_left_alone_and_the_hardest_level_grows() -> None:
    first, _, last = example.shares(seed=0)

    assert last["noise"] < 0.1
    assert last["hard"] > first["hard"]


def test_the_table_has_a_row_for_each_third() -> None:
    thirds = [{"easy": 0.4, "middle": 0.3, "hard": 0.2, "noise": 0.1}] * 3

    assert example.table([thirds]).splitlines() == [
        "third    easy  middle    hard   noise",
        *(f"{third:5}    0.40    0.30    0.20    0.10" for third in (1, 2, 3)),
        "noise in the last third: at most 0.10",
    ]
