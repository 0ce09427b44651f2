"""Processes that train together choose the same sets, as one process does; and what cannot be shared is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import data, manager, rows
from tests.support.ranks import on_ranks
from train_manager import InputError, Interleaved
from train_manager.extensions import Curriculum, Distributed, TestTimeTraining

pytestmark = pytest.mark.slow


def shares(together: bool) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    curriculum = Curriculum({"many": rows(20), "few": rows(10)}, temperature=0.5)
    levels = Interleaved({"many": data(61, seed=0), "few": data(25, seed=0)}, choose=curriculum.choose)
    extensions = [curriculum, *([Distributed()] if together else [])]
    tm = manager(*extensions, train_data=levels, steps_per_epoch=10, eval_data=None)
    tm.train()
    return [{name: row[name] for name in ("share/many", "share/few")} for row in tm.history.epochs]


def refusal() -> str:
    torch.manual_seed(0)
    try:
        manager(TestTimeTraining(modules=["0"]), Distributed()).train()
    except InputError as error:
        return error.what
    return ""


def test_all_processes_choose_the_sets_that_one_process_chooses(fork_server: ForkServer, tmp_path: Path) -> None:
    assert on_ranks(fork_server, 2, shares, True, folder=tmp_path) == [shares(together=False)] * 2


def test_adapting_to_batches_that_processes_share_is_refused(fork_server: ForkServer, tmp_path: Path) -> None:
    what = "TestTimeTraining adapts to whole batches in their order, but several processes share them"

    assert on_ranks(fork_server, 2, refusal, folder=tmp_path) == [what] * 2
