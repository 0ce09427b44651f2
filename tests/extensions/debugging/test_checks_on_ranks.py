"""Checks that call the model beside the training, where several processes train together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager, outcome
from tests.support.ranks import ends_of, on_ranks, start_ranks
from train_manager import InMemory, NonFiniteLoss, diagnose, every, rehearse
from train_manager.errors import RankError
from train_manager.extensions import ActivationStatistics, BatchLeakCheck, Distributed, NonFiniteFinder
from train_manager.trials.trial import Trial

pytestmark = [pytest.mark.slow, pytest.mark.whole]


class Root(nn.Module):
    """Makes nan of numbers below 0, and an infinite gradient at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sqrt()


def with_root(strategy: str, number: float) -> None:
    """Train on 48 rows above 0 and one with another number, which rank 1 has."""
    inputs = torch.ones(48, 1)
    inputs[15] = number
    given = InMemory(inputs, inputs, batch_size=12)
    first = nn.Linear(1, 1, bias=False)
    nn.init.ones_(first.weight)
    model = nn.Sequential(first, Root(), nn.Linear(1, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.0)
    found = [NonFiniteFinder(), Distributed(strategy)]
    manager(*found, model=model, loss=F.mse_loss, optimizer=sgd, train_data=given, eval_data=None).train()


@pytest.mark.parametrize("strategy", ["after", "ddp"])
def test_a_loss_that_is_nan_on_one_rank_is_explained_there_and_named_on_the_others(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    first, second = ends_of(start_ranks(fork_server, 2, with_root, strategy, -1.0, folder=tmp_path), tmp_path)

    assert isinstance(second.error, NonFiniteLoss)
    assert "the loss was nan in step 2, epoch 1: module '1' (Root) made it of finite numbers" in second.text
    assert isinstance(first.error, RankError)
    assert "rank 1 has failed: NonFiniteLoss: the loss was nan in step 2" in first.text


@pytest.mark.parametrize("strategy", ["after", "ddp"])
def test_gradients_that_one_rank_has_made_infinite_are_explained_on_all(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    ends = ends_of(start_ranks(fork_server, 2, with_root, strategy, 0.0, folder=tmp_path), tmp_path)

    for end in ends:
        assert isinstance(end.error, NonFiniteLoss), end.text
        assert "the gradients were not finite" in end.text
        assert "in step 2, epoch 1: SqrtBackward0 in module '1' (Root) made it of finite numbers" in end.text


def looked_at(strategy: str | None, looks: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    leaks, statistics = BatchLeakCheck(at=every(4)), ActivationStatistics(every=2)
    tm = manager(*([leaks, statistics] if looks else []), *([] if strategy is None else [Distributed(strategy)]))
    found = outcome(tm, tm.train())
    series = {name: list(columns.labels) for name, columns in statistics.series.items()}
    return {**found, "findings": leaks.findings, "series": series}


@pytest.mark.parametrize("strategy", ["after", "ddp"])
def test_checks_that_call_the_model_leave_the_training_as_it_is(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    without = on_ranks(fork_server, 2, looked_at, strategy, False, folder=tmp_path)

    found = on_ranks(fork_server, 2, looked_at, strategy, True, folder=tmp_path)

    for one in found:
        assert torch.equal(one["weights"], without[0]["weights"])
    assert not found[0]["findings"]
    assert found[0]["findings"].covered
    assert found[0]["series"]
    assert (found[1]["findings"], found[1]["series"]) == (None, {})  # rank 0 alone looks


def tried(strategy: str, folder: str) -> tuple[Any, list[Any], list[Any]]:
    torch.manual_seed(0)
    tm = manager(Distributed(strategy), train_dir=Path(folder, "runs"))
    rehearsed = rehearse(tm)
    diagnosed = diagnose(tm, quiet=True)
    result = tm.train()
    return outcome(tm, result)["weights"], [str(one) for one in rehearsed], [str(one) for one in diagnosed]


@pytest.mark.parametrize("strategy", ["after", "ddp"])
def test_each_rank_rehearses_and_diagnoses_by_itself(fork_server: ForkServer, tmp_path: Path, strategy: str) -> None:
    without = on_ranks(fork_server, 2, looked_at, strategy, False, folder=tmp_path)

    found = on_ranks(fork_server, 2, tried, strategy, str(tmp_path), folder=tmp_path)

    assert [torch.equal(weights, without[0]["weights"]) for weights, _, _ in found] == [True, True]
    assert found[0][1] == found[1][1]
    assert found[0][2] == found[1][2]


def folder_of_a_trial(folder: str) -> str:
    tm = manager(Distributed("after"), train_dir=Path(folder, "runs"))
    with Trial(tm, "the test") as trial:
        trial.move_files()
        assert tm.train_dir is not None
        return tm.train_dir.parent.name


def test_each_rank_tries_a_training_in_a_folder_of_its_own(fork_server: ForkServer, tmp_path: Path) -> None:
    names = on_ranks(fork_server, 2, folder_of_a_trial, str(tmp_path), folder=tmp_path)

    assert names == [".rehearsal", ".rehearsal-1"]


def by_rank_0() -> Tensor:
    torch.manual_seed(0)
    tm = manager(Distributed("ddp"))
    if tm.ranks.place.rank == 0:
        diagnose(tm, quiet=True)
        rehearse(tm)
    tm.train()
    return torch.cat([value.flatten() for value in tm.model.state_dict().values()])


def test_rank_0_alone_may_diagnose(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = on_ranks(fork_server, 2, by_rank_0, folder=tmp_path)

    assert torch.equal(first, second)
