"""A distributed algorithm as an extension of a user's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager, rows, whole
from tests.support.ranks import on_ranks
from train_manager import Extension


class MeanOfGradients(Extension):
    """Replaces each gradient by its mean over all processes, before the step."""

    def pre_run(self) -> None:
        dist.init_process_group("gloo")

    def pre_train_optimizer_step(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def post_run(self) -> None:
        dist.destroy_process_group()


def batches(part: slice) -> list[tuple[Tensor, Tensor]]:
    x, y = rows(48)
    return [(x[start : start + 12][part], y[start : start + 12][part]) for start in range(0, 48, 12)]


def train(part: slice, *extensions: Extension) -> Tensor:
    tm = manager(*extensions, train_data=batches(part), eval_data=None)
    tm.train()
    return whole(tm)


def train_on_half() -> Any:
    return train(slice(int(os.environ["RANK"]), None, 2), MeanOfGradients())


@pytest.mark.whole
@pytest.mark.slow
def test_f18_gradients_that_a_hook_makes_one_train_two_processes_on_half_batches_as_one_on_whole_batches(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for found in on_ranks(fork_server, 2, train_on_half, folder=tmp_path):
        torch.testing.assert_close(found, train(slice(None)), atol=1e-6, rtol=0)
