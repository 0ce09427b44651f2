"""Loops of a program's own, phases and extensions that come late, on several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_loops import LOOPS, loop
from tests.support.ranks import on_ranks

whole = pytest.mark.whole
QUICK = [("train_on_batch", "ddp"), ("phases", "ddp")]
CASES = [
    pytest.param(name, strategy, 2, marks=[] if (name, strategy) in QUICK else whole)
    for name in LOOPS
    for strategy in ("ddp", "after")
]
CASES += [pytest.param("train_on_batch", "ddp", 3, marks=whole), pytest.param("LBFGS", "after", 3, marks=whole)]


def numbers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy", "number"), CASES)
def test_an_own_loop_on_ranks_trains_as_in_one_process(
    fork_server: ForkServer, tmp_path: Path, name: str, strategy: str, number: int
) -> None:
    alone = loop(name, None)
    together = on_ranks(fork_server, number, loop, name, strategy, folder=tmp_path)

    for one in together:
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        assert torch.equal(one["weights"], together[0]["weights"])
        for kind in ("epochs", "evaluations"):
            for row, as_alone in zip(numbers(one[kind]), numbers(alone[kind]), strict=True):
                assert row == pytest.approx(as_alone, abs=1e-6)
        counts = "samples_seen", "steps", "updates"
        assert [one[key] for key in counts] == [alone[key] for key in counts]
