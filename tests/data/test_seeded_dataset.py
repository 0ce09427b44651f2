"""What a dataset draws at random is a function of seed, epoch and example."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from train_manager import InputError
from train_manager.data.random_state import example_seed, set_random_states
from train_manager.data.seeded_dataset import SeededDataset, SeededSampler, draws_nothing, index_in


class Draws(Dataset[Any]):
    """Its number, and what each of the three random states gives."""

    classes = ["cat", "dog"]

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.told: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> tuple[int, float, float, float]:
        return row, random.random(), float(np.random.rand()), float(torch.rand(()))

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def random_states() -> tuple[Any, ...]:
    return random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()


# ---- random numbers ----------------------------------------------------------------------------------------------


def test_an_example_is_the_same_whenever_it_is_fetched() -> None:
    dataset = SeededDataset(Draws())
    first = dataset[3]
    dataset[5]
    random.random(), np.random.rand(), torch.rand(())

    assert dataset[3] == first


@pytest.mark.parametrize("kind", [1, 2, 3], ids=["python", "numpy", "torch"])
def test_seed_epoch_and_example_each_make_other_numbers(kind: int) -> None:
    numbers = {
        SeededDataset(Draws(), seed)[index_in(row, epoch)][kind]
        for seed in range(4)
        for epoch in range(4)
        for row in range(4)
    }

    assert len(numbers) == 64


def test_a_batch_has_the_same_examples_as_they_are_one_by_one() -> None:
    dataset = SeededDataset(Draws())

    assert dataset.__getitems__([4, 2, 4]) == [dataset[4], dataset[2], dataset[4]]


def test_numpy_and_torch_do_not_draw_the_same_bits() -> None:
    set_random_states(example_seed(0, 0, 0))
    numpys = np.random.randint(0, 2**32, 1000, dtype=np.uint32).tolist()
    torchs = torch.randint(0, 2**32, (1000,)).tolist()

    assert len({*numpys} & {*torchs}) <= 2


def test_seeds_spread_over_all_bits() -> None:
    seeds = [example_seed(seed, epoch, row) for seed in range(10) for epoch in range(10) for row in range(100)]
    shares = [sum(seed >> bit & 1 for seed in seeds) / len(seeds) for bit in range(64)]

    assert len({*seeds}) == len(seeds)
    assert max(abs(share - 0.5) for share in shares) < 0.03


@pytest.mark.parametrize("fetch", [lambda data: data[1], lambda data: data.__getitems__([1, 2])])
def test_fetching_moves_no_random_state_of_the_main_process(fetch: Any) -> None:
    before = random_states()
    fetch(SeededDataset(Draws()))

    assert random_states() == before


def test_an_error_of_the_dataset_moves_none_either() -> None:
    class Broken(Draws):
        def __getitem__(self, row: int) -> Any:
            random.random()
            raise OSError("no such picture")

    before = random_states()
    with pytest.raises(OSError, match="no such picture"):
        SeededDataset(Broken())[0]

    assert random_states() == before


# ---- the epoch ---------------------------------------------------------------------------------------------------


def test_the_epoch_of_a_plain_number_is_the_one_that_was_set() -> None:
    dataset = SeededDataset(Draws())
    expected = dataset[index_in(3, epoch=2)]
    dataset.set_epoch(0)
    first = dataset[3]
    dataset.set_epoch(2)

    assert dataset[3] == expected
    assert first != expected


def test_the_dataset_within_is_told_the_epoch_of_the_number_once() -> None:
    inner = Draws()
    dataset = SeededDataset(Subset(inner, range(5)))
    dataset.__getitems__([index_in(row, epoch=3) for row in range(4)])
    dataset[index_in(0, epoch=4)]

    assert inner.told == [3, 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_ones_own_gives_the_same_with_any_number_of_workers(workers: int) -> None:
    dataset = SeededDataset(Draws())
    sampler = SeededSampler(dataset)
    sampler.set_epoch(2)
    expected = [dataset[row] for row in sampler]
    kept = {"persistent_workers": True} if workers else {}
    loader = DataLoader(dataset, 1, sampler=sampler, num_workers=workers, collate_fn=list, **kept)  # type: ignore[arg-type]
    sampler.set_epoch(0)
    list(loader)  # so that kept workers have the copy of another epoch
    sampler.set_epoch(2)

    assert [example for (example,) in loader] == expected


# ---- any dataset -------------------------------------------------------------------------------------------------


class Table:
    """As a Hugging Face dataset: many rows are fetched at once."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> dict[str, Any]:
        assert type(row) is int
        return {"row": row, "noise": random.random()}

    def __getitems__(self, rows: list[int]) -> list[Any]:
        raise AssertionError("one seed for many examples")


@pytest.mark.parametrize(
    "dataset",
    [
        range(4),
        [1, 2, 3],
        Table(),
        Subset(Draws(), [3, 1]),
        ConcatDataset([Draws(2), Draws(3)]),
        TensorDataset(torch.arange(4)),
        Subset(TensorDataset(torch.arange(4)), [2, 1]),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_any_dataset_has_its_length_and_gives_the_same_example_twice(dataset: Any) -> None:
    seeded = SeededDataset(dataset)

    assert len(seeded) == len(dataset)
    assert seeded[index_in(1, epoch=5)] == seeded.__getitems__([index_in(1, epoch=5)])[0]


def test_the_attributes_of_the_dataset_are_reachable() -> None:
    assert SeededDataset(Draws()).classes == ["cat", "dog"]


def test_an_attribute_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"^'Draws' object has no attribute 'colours'$"):
        SeededDataset(Draws()).colours  # noqa: B018


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda dataset: pickle.loads(pickle.dumps(dataset))])
def test_a_copy_gives_the_same_examples(copied: Any) -> None:
    dataset = SeededDataset(Draws(), seed=4)

    assert copied(dataset)[2] == dataset[2]


def test_a_copy_in_the_making_has_no_attributes_of_a_dataset() -> None:
    assert not hasattr(SeededDataset.__new__(SeededDataset), "classes")


def test_only_tensors_are_known_to_draw_nothing() -> None:
    class OfOnesOwn(TensorDataset):
        pass

    assert draws_nothing(Subset(TensorDataset(torch.zeros(1)), [0]))
    assert not draws_nothing(OfOnesOwn(torch.zeros(1)))
    assert not draws_nothing(Subset(Draws(), [0]))


def test_it_shows_what_it_holds() -> None:
    assert repr(SeededDataset(Draws(), seed=4)) == "SeededDataset(Draws, seed=4)"


def test_a_stream_is_refused() -> None:
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            yield torch.zeros(1)

    with pytest.raises(InputError) as caught:
        SeededDataset(Stream())

    assert str(caught.value) == (
        "SeededDataset was given a Stream, an IterableDataset, whose examples have no index\n"
        "  give a dataset with dataset[i]"
    )
