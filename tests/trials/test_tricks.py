"""Which tricks suit a training, and that each does what its lines do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

import train_manager.extensions
from tests.support.training import weights
from train_manager import Extension, InMemory, SeededDataLoader, TrainManager
from train_manager.extensions import MixedPrecision
from train_manager.testing import tiny_manager
from train_manager.trials.tricks import Trick, tricks_for

X, Y = torch.rand(20, 2), torch.arange(20) % 2
TENSORS = TensorDataset(X, Y)


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return X[row], Y[row]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


class Compile(Extension):
    """In place of the extension of this name."""


@pytest.fixture(autouse=True)
def compile_is_there_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_manager.extensions, "Compile", None, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)


def suiting(*extensions: Extension, **options: Any) -> dict[str, Trick]:
    tm = tiny_manager(*extensions, **options)
    batch = next(iter(tm.train_data or ()))
    return {one.name: one for one in tricks_for(tm, batch)}


def images(**options: Any) -> TrainManager:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    batches = [(torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), Y[:4])] * 3
    return tiny_manager(
        model=model, **{"train_data": batches, "eval_data": None, "optimizer": torch.optim.AdamW, **options}
    )


def test_a_list_of_batches_is_computed_otherwise_but_not_read_otherwise() -> None:
    assert [*suiting()] == ["fused", "bf16"]


def test_what_the_training_uses_already_is_not_tried() -> None:
    def fused(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, fused=True)

    assert [*suiting(MixedPrecision(), optimizer=fused)] == []


def test_an_optimizer_that_cannot_be_fused_is_not() -> None:
    assert "fused" not in suiting(optimizer=torch.optim.RMSprop)


def test_the_extension_compile_is_tried_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_manager.extensions, "Compile", Compile)

    assert suiting()["Compile"].lines == ("tm.add_extension(Compile())",)
    assert "Compile" not in suiting(Compile())


def test_channels_last_is_for_batches_of_images_and_convolutions() -> None:
    tm = images()
    (batch, *_) = list(tm.train_data or ())

    assert "channels_last" in [one.name for one in tricks_for(tm, batch)]
    assert "channels_last" not in [one.name for one in tricks_for(tm, (X, Y))]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (DataLoader(TENSORS, batch_size=4), ["InMemory"]),
        (DataLoader(TENSORS, batch_size=4, shuffle=True, num_workers=2), ["InMemory"]),
        (SeededDataLoader(TENSORS, batch_size=4, shuffle=True), ["InMemory"]),
        (DataLoader(TENSORS, batch_size=4, collate_fn=lambda rows: (X[:4], Y[:4])), ["2 workers", "4 workers"]),
        (DataLoader(TENSORS, batch_size=4, sampler=RandomSampler(TENSORS, True, 8)), ["2 workers", "4 workers"]),
        (DataLoader(TENSORS, batch_sampler=BatchSampler(RandomSampler(TENSORS), 4, False)), ["2 workers", "4 workers"]),
        (DataLoader(Rows(), batch_size=4), ["2 workers", "4 workers"]),
        (DataLoader(Rows(), batch_size=4, num_workers=4), ["0 workers", "2 workers"]),
        (DataLoader(Stream(), batch_size=4), []),  # each worker would give the whole stream
        (InMemory(X, Y, batch_size=4), []),
    ],
)
def test_how_batches_can_be_read_otherwise_depends_on_the_data(data: Any, expected: list[str]) -> None:
    tm = tiny_manager(train_data=data)

    assert [one.name for one in tricks_for(tm, (X, Y)) if one.reads] == expected


@pytest.mark.parametrize("loader", [DataLoader, SeededDataLoader])
def test_in_memory_gives_the_batches_of_the_loader(loader: Any) -> None:
    def data() -> Any:
        return loader(TENSORS, batch_size=6, drop_last=True, shuffle=loader is SeededDataLoader)

    tm = tiny_manager(train_data=data())
    (memory,) = (one for one in tricks_for(tm, (X, Y)) if one.reads)
    memory.apply(tm)

    assert isinstance(tm.train_data, InMemory)
    assert (len(tm.train_data), memory.note) == (3, "")
    assert all(torch.equal(one, other) for (one, _), (other, _) in zip(tm.train_data, data(), strict=True))


def test_an_order_that_in_memory_does_not_keep_is_told() -> None:
    data = DataLoader(TENSORS, batch_size=6, shuffle=True)

    assert suiting(train_data=data)["InMemory"].note == "InMemory shuffles in an order of its own"


@pytest.mark.parametrize("name", ["fused", "channels_last", "bf16"])
def test_its_lines_do_what_it_does_when_it_is_tried(name: str) -> None:
    trained = []
    for way in ("tried", "pasted"):
        tm = images()
        (trick,) = (one for one in tricks_for(tm, next(iter(tm.train_data or ()))) if one.name == name)
        if way == "pasted":
            exec("\n".join((*trick.imports, *trick.lines)), {"tm": tm})
        else:
            trick.apply(tm)
            if trick.extension is not None:
                tm.add_extension(trick.extension())
        tm.train()
        trained.append(weights(tm.model))

    assert torch.equal(*trained)


def test_the_lines_of_in_memory_do_what_it_does_when_it_is_tried() -> None:
    tm = tiny_manager(train_data=DataLoader(TENSORS, batch_size=6, shuffle=True, drop_last=True), device="cpu")
    (trick,) = (one for one in tricks_for(tm, (X, Y)) if one.name == "InMemory")
    exec("\n".join((*trick.imports, *trick.lines)), {"tm": tm})

    assert repr(tm.train_data) == "InMemory(20 rows, 3 batches of 6, shuffle=True, drop_last=True)"


def test_other_workers_read_the_same_batches_of_the_loader_of_the_user() -> None:
    data = DataLoader(Rows(), batch_size=4, num_workers=2, persistent_workers=True)
    tm = tiny_manager(train_data=data)
    (none, *_) = (one for one in tricks_for(tm, (X, Y)) if one.reads)
    none.apply(tm)
    tried: Any = tm.train_data

    assert (tried.num_workers, data.num_workers, tried.dataset is data.dataset) == (0, 2, True)
    assert torch.equal(torch.cat([inputs for inputs, _ in tried]), X)


def test_the_state_of_an_optimizer_is_laid_out_as_the_weights_are() -> None:
    tm = images(epochs=2)
    tm.train_epoch()
    for trick in tricks_for(tm, next(iter(tm.train_data or ()))):
        trick.apply(tm)
    optimizer: Any = tm.optimizer

    for parameter, state in optimizer.state.items():
        assert state["exp_avg"].stride() == parameter.stride()
