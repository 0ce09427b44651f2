"""Loops of a program's own, phases and extensions that come late, on several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.rank_loops import LOOPS, loop
from tests.support.rank_trainings import assert_as_alone
from tests.support.ranks import on_ranks

whole = pytest.mark.whole
QUICK = [("train_on_batch", "ddp"), ("phases", "ddp")]
CASES = [
    pytest.param(name, strategy, 2, marks=[] if (name, strategy) in QUICK else whole)
    for name in LOOPS
    for strategy in ("ddp", "after")
]
CASES += [pytest.param("train_on_batch", "ddp", 3, marks=whole), pytest.param("LBFGS", "after", 3, marks=whole)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy", "number"), CASES)
def test_an_own_loop_on_ranks_trains_as_in_one_process(
    fork_server: ForkServer, tmp_path: Path, name: str, strategy: str, number: int
) -> None:
    together = on_ranks(fork_server, number, loop, name, strategy, folder=tmp_path)

    assert_as_alone(together, loop(name, None))
