"""Reading data: in which order, which batch is the last, where an epoch begins, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, cycle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)

from train_manager import Endless, InputError, Interleaved, Together
from train_manager.data.readable import (
    begin_epoch,
    example_index_of,
    is_endless,
    is_read_once,
    length_of,
    refuse_unusable,
)


class Numbers:
    """0, 1, ... without a length; notes what has been read."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.read: list[int] = []

    def __iter__(self) -> Iterator[int]:
        for number in range(self.end):
            self.read.append(number)
            yield number


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


# ---- from epoch to epoch -----------------------------------------------------------------------------------------


def test_the_epoch_is_said_to_whoever_wants_to_know() -> None:
    said: list[tuple[str, int]] = []

    class Knows:
        def __init__(self, name: str) -> None:
            self.name = name

        def set_epoch(self, epoch: int) -> None:
            said.append((self.name, epoch))

    class Loader(Knows):
        sampler, dataset = Knows("sampler"), Knows("dataset")

    begin_epoch(Loader("loader"), 3)
    begin_epoch([1, 2], 3)

    assert said == [("loader", 3), ("sampler", 3), ("dataset", 3)]


class Told(Dataset[int]):
    """A dataset, or a sampler, that is told the epoch."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> int:
        return row

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


TOLD: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda told: DataLoader(told),
    "sampler": lambda told: DataLoader(told, sampler=told),
    "batch sampler": lambda told: DataLoader(range(2), batch_sampler=told),  # type: ignore[arg-type]
    "sampler of a batch sampler": lambda told: DataLoader(range(2), batch_sampler=BatchSampler(told, 2, False)),  # type: ignore[arg-type]
    "subset": lambda told: DataLoader(Subset(told, [0])),
    "datasets in a row": lambda told: DataLoader(ConcatDataset([Subset(told, [0]), told])),
    "datasets side by side": lambda told: DataLoader(StackDataset(a=told)),
}


@pytest.mark.parametrize("make", TOLD.values(), ids=TOLD)
def test_the_epoch_reaches_every_part_of_a_loader_once(make: Callable[[Any], Any]) -> None:
    told = Told()
    begin_epoch(make(told), 3)

    assert told.epochs == [3]


@pytest.mark.parametrize("several", [Interleaved, Together])
def test_the_epoch_reaches_every_set_when_it_is_read(several: type[Interleaved | Together]) -> None:
    loader, rows, endless = Told(), Told(), Told()
    data = several({"a": DataLoader(Subset(loader, [0])), "b": rows, "c": Endless(endless)})
    begin_epoch(data, 3)
    list(data)

    assert (loader.epochs[0], rows.epochs[0]) == (3, 3)
    assert endless.epochs == [3]


# ---- which examples ----------------------------------------------------------------------------------------------


def test_data_that_do_not_number_their_examples_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        example_index_of(DataLoader(Told()), "train_data")

    assert str(caught.value) == (
        "train_data (DataLoader) does not know the numbers of its examples\n"
        "  InMemory, Rows and SeededDataLoader do; any dataset can return its index as a part of each example"
    )


# ---- without an end ----------------------------------------------------------------------------------------------


class EndlessStream(Stream):
    endless = True


@pytest.mark.parametrize("data", [count(), cycle([1]), EndlessStream(), DataLoader(EndlessStream()), Endless([1])])
def test_what_is_known_to_be_endless(data: Any) -> None:
    assert is_endless(data)


@pytest.mark.parametrize("data", [[1], range(3), Numbers(3), DataLoader(Stream())])
def test_what_is_not_known_to_be_endless(data: Any) -> None:
    assert not is_endless(data)


# ---- how long --------------------------------------------------------------------------------------------------


def test_a_data_loader_knows_its_length() -> None:
    assert length_of(DataLoader(TensorDataset(torch.zeros(5)), batch_size=2)) == 3


def test_a_data_loader_over_a_stream_does_not_know_its_length() -> None:
    assert length_of(DataLoader(Stream())) is None


def test_a_generator_does_not_know_its_length() -> None:
    assert length_of(n for n in range(3)) is None


# ---- read once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        (n for n in range(1)),
        iter([1]),
        zip([1], [2], strict=True),
        map(str, [1]),
        enumerate([1]),
        count(),
        iter(DataLoader(TensorDataset(torch.zeros(1)))),
    ],
)
def test_what_can_be_read_once_is_known(data: Iterable[Any]) -> None:
    assert is_read_once(data)


@pytest.mark.parametrize("data", [[1], (1,), {1: 2}, range(2), Numbers(2), DataLoader(TensorDataset(torch.zeros(1)))])
def test_what_can_be_read_again_is_known(data: Iterable[Any]) -> None:
    assert not is_read_once(data)


def test_an_iterator_of_a_users_class_may_be_readable_again() -> None:
    """Some loaders return themselves from __iter__ and start anew."""

    class Loader:
        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> int:
            raise StopIteration

    assert not is_read_once(Loader())


# ---- what is refused -------------------------------------------------------------------------------------------


class OnlyRows:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> int:
        return row


class Fetches(OnlyRows):
    def __getitems__(self, rows: list[int]) -> list[int]:
        return rows

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))


class Frame(OnlyRows):
    iloc = None

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])


@pytest.mark.parametrize("kind", [OnlyRows, Fetches, Frame])
def test_what_gives_single_examples_is_refused(kind: type) -> None:
    with pytest.raises(InputError) as caught:
        refuse_unusable(kind(), "train_data")

    assert str(caught.value) == (
        f"train_data must be an iterable of batches, but is a {kind.__name__} of single examples\n"
        "  wrap it: Rows(data, batch_size=64, shuffle=True), or a DataLoader"
    )


def test_an_array_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        refuse_unusable(np.zeros((2, 2)), "train_data")

    assert str(caught.value) == (
        "train_data must be an iterable of batches, but is an array\n"
        "  cut it into batches: InMemory(x, y, batch_size=64)"
    )


def test_a_dataset_that_is_a_stream_of_batches_is_taken() -> None:
    refuse_unusable(Stream(), "train_data")
