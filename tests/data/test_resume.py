"""Every source of batches, stopped anywhere, continues with the rest of the epoch and with the epochs after it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset

from train_manager import Endless, InMemory, Interleaved, Rows, SeededDataLoader, Together
from train_manager.data.batch import FromSource


class Augmented(Dataset[Tensor]):
    """Numbers that are changed at random, by each of the three random states."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> Tensor:
        return torch.tensor([row, random.random(), float(np.random.rand()), float(torch.rand(()))], dtype=torch.float64)


Maker = Callable[[int, int, bool, bool], Any]

SOURCES: dict[str, Maker] = {
    "in memory": lambda n, size, shuffle, drop: InMemory(
        torch.arange(n), batch_size=size, shuffle=shuffle, drop_last=drop
    ),
    "rows": lambda n, size, shuffle, drop: Rows(range(n), batch_size=size, shuffle=shuffle, drop_last=drop),
    "loader": lambda n, size, shuffle, drop: SeededDataLoader(Augmented(n), size, shuffle, drop_last=drop),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "rows": lambda: InMemory(torch.arange(100, 107), batch_size=2, shuffle=True),
    "list": lambda: [1, 2, 3],
    "endless": lambda: Endless(InMemory(torch.arange(100, 105), batch_size=2, shuffle=True)),
    "endless list": lambda: Endless([1, 2, 3]),
    "endless loader": lambda: Endless(SeededDataLoader(Augmented(5), 2, shuffle=True)),
    "loader": lambda: SeededDataLoader(Augmented(5), 2, shuffle=True),
}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "interleaved": lambda a, b: Interleaved({"a": a, "b": b}),
    "interleaved at random": lambda a, b: Interleaved({"a": a, "b": b}, ratios={"a": 2, "b": 1}, seed=1),
    "together": lambda a, b: Together({"a": a, "b": b}),
    "within another": lambda a, b: Interleaved({"a": a, "both": Interleaved({"b": b, "c": [8, 9]})}),
    "endless": lambda a, b: Interleaved({"a": a, "b": Endless(Interleaved({"b": b, "c": [8, 9]}))}),
}


def plain(batch: Any) -> Any:
    if isinstance(batch, FromSource):
        return batch.datasource_name, plain(batch.batch)
    if isinstance(batch, dict):
        return {name: plain(part) for name, part in batch.items()}
    return batch.tolist() if isinstance(batch, Tensor) else batch


def passes(data: Any, epochs: range) -> list[list[Any]]:
    """As a training reads: each epoch is named before it begins."""
    given_batches = []
    for epoch in epochs:
        data.set_epoch(epoch)
        given_batches.append([plain(batch) for batch in data])
    return given_batches


def stopped_and_resumed(make: Callable[[], Any], epochs: int, stop: int) -> tuple[list[Any], list[Any]]:
    """What an undisturbed reading gives; and what is given before a stop and after a resume from a fresh start."""
    whole = list(chain(*passes(make(), range(epochs))))
    stop %= len(whole)
    first, epoch = make(), -1
    seen: list[Any] = []
    while len(seen) < stop:
        epoch += 1
        first.set_epoch(epoch)
        seen += [plain(batch) for batch in islice(first, stop - len(seen))]
    state = json.loads(json.dumps(first.state_dict()))
    resumed = make()
    resumed.load_state_dict(state)
    return whole, seen + list(chain(*passes(resumed, range(state["epoch"], epochs))))


sizes = {"examples": st.integers(1, 20), "size": st.integers(1, 7), "shuffle": st.booleans(), "drop": st.booleans()}


@settings(deadline=None)
@given(kind=st.sampled_from(sorted(SOURCES)), epochs=st.integers(1, 3), stop=st.integers(0, 60), **sizes)
def test_the_rest_and_the_next_epochs_are_those_of_an_undisturbed_training(
    kind: str, examples: int, size: int, shuffle: bool, drop: bool, epochs: int, stop: int
) -> None:
    whole, seen = stopped_and_resumed(
        lambda: SOURCES[kind](examples + size, size, shuffle, drop), epochs, stop
    )  # at least one full batch

    assert seen == whole


@settings(deadline=None)
@given(
    pair=st.sampled_from(sorted(PAIRS)),
    kind=st.sampled_from(sorted(SOURCES)),
    other=st.sampled_from(sorted(OTHERS)),
    epochs=st.integers(1, 3),
    stop=st.integers(0, 90),
    **sizes,
)
def test_so_are_those_of_several_sets(
    pair: str, kind: str, other: str, examples: int, size: int, shuffle: bool, drop: bool, epochs: int, stop: int
) -> None:
    whole, seen = stopped_and_resumed(
        lambda: PAIRS[pair](SOURCES[kind](examples + size, size, shuffle, drop), OTHERS[other]()), epochs, stop
    )

    assert seen == whole


@settings(deadline=None)
@given(
    inner=st.sampled_from(sorted(OTHERS)),
    epoch=st.integers(0, 2),
    before=st.integers(1, 20),
    after=st.integers(1, 20),
    named=st.booleans(),
)
def test_so_are_those_of_endless_data(inner: str, epoch: int, before: int, after: int, named: bool) -> None:
    def make() -> Endless:
        data = Endless(OTHERS[inner]())
        data.set_epoch(epoch)
        return data

    whole = [plain(batch) for batch in islice(make(), before + after)]
    first = make()
    stream = iter(first)  # which lives on while the state is taken
    seen = [plain(batch) for batch in islice(stream, before)]
    resumed = Endless(OTHERS[inner]())
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    if named:
        resumed.set_epoch(epoch)

    assert seen + [plain(batch) for batch in islice(resumed, after)] == whole
