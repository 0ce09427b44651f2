"""Data of every kind, read by several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_loops import evaluate, trained_on, with_a_distributed_sampler, with_own_shares
from tests.support.ranks import on_ranks
from train_manager import Endless, Interleaved
from train_manager.data.shares import gives_own_batches

whole = pytest.mark.whole
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [2, pytest.param(3, marks=whole)])
def test_an_evaluation_counts_every_example_once(fork_server: ForkServer, tmp_path: Path, number: int) -> None:
    alone = evaluate()
    together = on_ranks(fork_server, number, evaluate, folder=tmp_path)

    for one in together:
        assert one["results"] == {name: pytest.approx(result, abs=1e-7) for name, result in alone["results"].items()}
        assert torch.equal(one["predictions"], alone["predictions"])
    for name in alone["counted"]:
        counted = [index for one in together for index in one["counted"].get(name, [])]
        assert sorted(counted) == sorted(alone["counted"][name]), name


@whole
def test_only_rank_0_warns_and_once_of_a_set_that_is_not_shared(fork_server: ForkServer, tmp_path: Path) -> None:
    together = on_ranks(fork_server, 2, evaluate, folder=tmp_path)

    cure = "so rank 0 evaluates all of it (give InMemory, Rows or SeededDataLoader)"
    names = "eval_data['51 loader']", "eval_data['51 list']"
    assert together[0]["said"] == [f"{name} cannot be shared by the processes, {cure}" for name in names]
    assert together[1]["said"] == []


@pytest.mark.parametrize("number", [2, pytest.param(3, marks=whole)])
@pytest.mark.parametrize(
    "name", ["Interleaved", *(pytest.param(one, marks=whole) for one in ("Endless", "Together", "Rows", "workers"))]
)
def test_data_made_of_sets_train_as_in_one_process(
    fork_server: ForkServer, tmp_path: Path, name: str, number: int
) -> None:
    alone = trained_on(name)
    for one in on_ranks(fork_server, number, trained_on, name, folder=tmp_path):
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        assert one["samples_seen"] == alone["samples_seen"]
        assert one["metrics"].get("same") == pytest.approx(alone["metrics"].get("same"), abs=1e-6)
        assert [row["loss"] for row in one["epochs"]] == pytest.approx([row["loss"] for row in alone["epochs"]])


@whole
def test_a_distributed_sampler_trains_as_in_a_loop_with_ddp(fork_server: ForkServer, tmp_path: Path) -> None:
    for ours, by_hand, samples in on_ranks(fork_server, 2, with_a_distributed_sampler, folder=tmp_path):
        assert torch.equal(ours, by_hand)
        assert samples == 60


@whole
def test_a_class_that_gives_each_process_its_own_batches_trains_as_in_one_process(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    alone = with_own_shares()
    for one in on_ranks(fork_server, 2, with_own_shares, folder=tmp_path):
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        assert one["metrics"]["own"] == pytest.approx(alone["metrics"]["own"], abs=1e-6)


def test_a_class_of_the_users_says_that_its_batches_are_of_one_process() -> None:
    own = type("Own", (list,), {"gives_shares": True})()

    assert gives_own_batches(own)
    assert gives_own_batches(Endless(own))
    assert not gives_own_batches(Interleaved({"own": own, "whole": [1]}))
