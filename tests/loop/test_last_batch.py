"""What is told of a last batch that is too small for BatchNorm, before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from train_manager import InMemory
from train_manager.data.seeded_loader import SeededDataLoader
from train_manager.extensions import FreezeModules
from train_manager.loop.last_batch import check_last_batch
from train_manager.testing import tiny_manager

ONE = "BatchNorm gets one example of the last batch of an epoch"


def net(norm: type[nn.Module] = nn.BatchNorm1d) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 4), norm(4), nn.Linear(4, 2))


def dataset(rows: int) -> TensorDataset:
    return TensorDataset(torch.rand(rows, 2), torch.zeros(rows, dtype=torch.long))


def in_memory(rows: int, **options: Any) -> InMemory:
    return InMemory(*dataset(rows).tensors, batch_size=8, **options)


def test_it_is_told_before_the_first_step() -> None:
    tm = tiny_manager(model=net(), train_data=in_memory(17), eval_data=None)
    with pytest.raises(UserWarning, match=ONE):  # the tests make errors of warnings
        tm.train()

    assert tm.step_num == 0
    assert [one.in_a_line for one in tm.findings] == [f"{ONE} (give drop_last=True, or another batch_size)"]


@pytest.mark.parametrize(
    "data",
    [in_memory(17), DataLoader(dataset(17), batch_size=8), SeededDataLoader(dataset(17), batch_size=8, seed=0)],
    ids=lambda data: type(data).__name__,
)
def test_the_length_of_the_last_batch_is_known_of(data: Any) -> None:
    assert [one.level for one in check_last_batch(net(), data, processes=1)] == ["warning"]


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (net(), in_memory(18)),
        (net(), in_memory(16)),
        (net(), in_memory(17, drop_last=True)),
        (net(), DataLoader(dataset(17), batch_size=8, drop_last=True)),
        (net(), [(torch.rand(1, 2), torch.zeros(1))]),
        (net(nn.LayerNorm), in_memory(17)),
        (net().eval(), in_memory(17)),
        (net(), InMemory(torch.rand(3, 2), batch_size=1)),  # each batch has one example, which may be meant
    ],
)
def test_nothing_is_told_of(model: nn.Module, data: Any) -> None:
    assert check_last_batch(model, data, processes=1) == []


def test_nothing_is_told_of_a_stream_without_a_length() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(dataset(17))

    assert check_last_batch(net(), DataLoader(Stream(), batch_size=8), processes=1) == []


@pytest.mark.parametrize(("rows", "where"), [(16 + 4, []), (16 + 3, ["3 examples for 2 processes"])])
def test_each_of_several_processes_needs_two_examples(rows: int, where: list[str]) -> None:
    assert [one.where for one in check_last_batch(net(), in_memory(rows), processes=2)] == where


def test_a_norm_over_all_processes_has_their_examples_together() -> None:
    assert check_last_batch(net(nn.SyncBatchNorm), in_memory(18), processes=2) == []


def test_a_sampler_of_each_process_gives_it_batches_of_its_own() -> None:
    def loader(rows: int) -> DataLoader[Any]:
        sampler: DistributedSampler[Any] = DistributedSampler(dataset(rows), num_replicas=2, rank=0)
        return DataLoader(dataset(rows), batch_size=8, sampler=sampler)

    assert check_last_batch(net(), loader(2 * (16 + 3)), processes=2) == []
    assert [one.where for one in check_last_batch(net(), loader(2 * (16 + 1)), processes=2)] == [""]


def test_nothing_is_told_of_a_norm_that_is_frozen() -> None:
    tm = tiny_manager(FreezeModules("1"), model=net(), train_data=in_memory(17), eval_data=None)
    tm.train()

    assert tm.findings == []
