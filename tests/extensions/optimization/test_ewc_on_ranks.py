"""Processes that train together keep one anchor, also where each reads examples of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager, rows
from tests.support.ranks import on_ranks
from train_manager.extensions import EWC, Distributed

pytestmark = pytest.mark.slow


def importance() -> dict[str, list[float]]:
    examples = TensorDataset(*rows(24))
    ewc, together = EWC(1.0, after="first"), Distributed()
    loader = DataLoader(examples, batch_size=4, sampler=DistributedSampler(examples, 2, int(os.environ["RANK"])))
    tm = manager(ewc, together, train_data=loader, eval_data=None)
    with tm.run(), tm.phase("first"):
        tm.train()
    anchor = ewc.state_dict()["anchors"]["first"]
    return {name: one.flatten().tolist() for name, one in anchor["importance"].items()}


def test_all_processes_have_the_anchor_of_the_first(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = on_ranks(fork_server, 2, importance, folder=tmp_path)

    assert first == second
