"""Processes that train together come to what one process comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import BY_PARTS, RECIPES, assert_as_alone, train
from tests.support.ranks import on_ranks

QUICK = [("plain", "ddp"), ("plain", "after"), ("plain", "fsdp"), ("Accumulate", "ddp"), ("SAM", "after")]
CASES: list[Any] = [
    pytest.param(recipe, strategy, marks=[] if (recipe, strategy) in QUICK else pytest.mark.whole)
    for recipe in RECIPES
    for strategy in ("after", "ddp", "fsdp")
    if strategy != "ddp" or recipe not in BY_PARTS
]


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.whole)])
@pytest.mark.parametrize(("recipe", "strategy"), CASES)
def test_ranks_train_as_one_process(
    fork_server: ForkServer, tmp_path: Path, recipe: str, strategy: str, number: int
) -> None:
    alone = train(recipe, None)
    together = on_ranks(fork_server, number, train, recipe, strategy, folder=tmp_path)

    assert_as_alone(together, alone)
    for one in together:
        assert one["metrics"]["odd"] == pytest.approx(alone["metrics"]["odd"], abs=1e-6)
