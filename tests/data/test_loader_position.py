"""A pass over data that the training may be in the middle of: nothing that it reads is moved."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from train_manager import Endless, InMemory, Rows
from train_manager.data.loader_position import _workers
from train_manager.data.reader import one_pass

NUMBERS = TensorDataset(torch.arange(80))


def numbers(batches: Any) -> list[list[int]]:
    return [batch[0].tolist() if isinstance(batch, list) else batch.tolist() for batch in batches]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def with_sampler(sampler: Callable[..., Any], *arguments: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(NUMBERS, batch_size=8, sampler=sampler(*arguments, **options, generator=seeded()))


def with_batch_sampler() -> DataLoader[Any]:
    return DataLoader(NUMBERS, batch_sampler=BatchSampler(RandomSampler(NUMBERS, generator=seeded()), 8, False))


def with_workers(workers: int, persistent: bool) -> DataLoader[Any]:
    return DataLoader(NUMBERS, 8, shuffle=True, generator=seeded(), num_workers=workers, persistent_workers=persistent)


class Wrapper:
    """Gives the batches of a loader, which it does not call ``dataset``."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: DataLoader(NUMBERS, 8, shuffle=True, generator=seeded()),
    "drawn on demand": lambda: with_sampler(RandomSampler, NUMBERS, replacement=True),
    "subset": lambda: with_sampler(SubsetRandomSampler, range(60)),
    "weighted": lambda: with_sampler(WeightedRandomSampler, [1.0] * 80, 80),
    "batch sampler": with_batch_sampler,
    "wrapper": lambda: Wrapper(with_workers(0, persistent=False)),
    "1 worker": lambda: with_workers(1, persistent=False),
    "2 persistent workers": lambda: with_workers(2, persistent=True),
}
ROWS: dict[str, Callable[[], Any]] = {
    "in memory": lambda: InMemory(torch.arange(80), batch_size=8, shuffle=True),
    "rows": lambda: Rows(range(80), batch_size=8, shuffle=True),
}


@pytest.mark.parametrize("make", (LOADERS | ROWS).values(), ids=LOADERS | ROWS)
def test_the_training_reads_what_it_reads_without_an_evaluation(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    undisturbed = make()
    expected = [numbers(undisturbed) for _ in range(2)]
    data, seen = make(), []
    for _ in range(2):
        training = iter(data)
        seen.append(numbers(islice(training, 3)))
        with one_pass(data) as batches:  # in the middle of the epoch
            evaluated = numbers(batches)
        seen[-1] += numbers(training)
        with one_pass(data) as batches:  # and after it
            numbers(batches)

    assert seen == expected
    assert len(evaluated) == len(data)


@pytest.mark.parametrize("make", (LOADERS | ROWS).values(), ids=LOADERS | ROWS)
def test_a_pass_that_is_broken_off_moves_nothing_either(make: Callable[[], Any]) -> None:
    undisturbed, data = make(), make()
    expected = numbers(undisturbed)
    training = iter(data)
    seen = numbers(islice(training, 3))
    with pytest.raises(KeyboardInterrupt), one_pass(data) as batches:
        next(batches)
        raise KeyboardInterrupt

    assert seen + numbers(training) == expected


# The first pass of persistent workers draws their seed before the order, and later passes do not.
@pytest.mark.parametrize("name", [name for name in LOADERS | ROWS if "persistent" not in name])
def test_evaluations_without_a_training_between_them_read_the_same(name: str) -> None:
    data = (LOADERS | ROWS)[name]()
    with one_pass(data) as batches:
        first = numbers(batches)
    with one_pass(data) as batches:
        second = numbers(batches)

    assert first == second


# ---- the workers of a loader -------------------------------------------------------------------------------------


class Processes(Dataset[int]):
    """Gives the process that an example is loaded in."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> int:
        return os.getpid()


class Draws(Processes):
    """Gives what is drawn by the random state of the process."""

    def __getitem__(self, row: int) -> int:
        return int(torch.randint(1000, ()))


def persistent(dataset: Dataset[int]) -> DataLoader[Any]:
    return DataLoader(dataset, 2, num_workers=1, persistent_workers=True, generator=seeded())


def processes(batches: Iterator[torch.Tensor]) -> set[int]:
    return {number for batch in batches for number in batch.tolist()}


def test_persistent_workers_of_evaluations_stay_from_one_to_the_next() -> None:
    loader = persistent(Processes())
    found = []
    for _ in range(2):
        with one_pass(loader) as batches:
            found.append(processes(batches))

    assert found[0] == found[1]
    assert len(found[0]) == 1
    assert os.getpid() not in found[0]


def test_a_training_has_persistent_workers_of_its_own() -> None:
    loader = persistent(Processes())
    training = processes(iter(loader))
    with one_pass(loader) as batches:
        evaluation = processes(batches)

    assert training.isdisjoint(evaluation)
    assert processes(iter(loader)) == training


def test_the_random_states_of_the_trainings_workers_are_not_moved() -> None:
    undisturbed, loader = persistent(Draws()), persistent(Draws())
    expected = [numbers(undisturbed) for _ in range(2)]
    seen = numbers(loader)
    with one_pass(loader) as batches:
        numbers(batches)

    assert [seen, numbers(loader)] == expected


def test_the_workers_of_evaluations_end_with_their_loader() -> None:
    gc.collect()  # other tests' loaders
    before = len(_workers)
    loader = persistent(Processes())
    with one_pass(loader) as batches:
        processes(batches)
    kept = len(_workers)
    del loader
    gc.collect()

    assert (kept, len(_workers)) == (before + 1, before)


# ---- the position of row batches ---------------------------------------------------------------------------------


def test_a_state_that_was_loaded_is_not_used_up() -> None:
    first, resumed = ROWS["rows"](), ROWS["rows"]()
    next(iter(first))
    resumed.load_state_dict(first.state_dict())
    with one_pass(resumed) as batches:
        evaluated = len(numbers(batches))

    assert (evaluated, resumed.batches_done, len(numbers(resumed))) == (10, 1, 9)


def test_the_examples_of_the_trainings_batch_stay_known() -> None:
    data = InMemory(torch.arange(8), batch_size=2)
    next(iter(data))
    with one_pass(data) as batches:
        numbers(batches)

    assert data.example_index.tolist() == [0, 1]


def test_endless_data_are_left_as_found() -> None:
    data, undisturbed = (Endless(InMemory(torch.arange(10), batch_size=4, shuffle=True)) for _ in range(2))
    training = iter(data)
    seen = numbers(islice(training, 2))
    with one_pass(data) as batches:
        numbers(islice(batches, 5))

    assert seen + numbers(islice(training, 5)) == numbers(islice(undisturbed, 7))


def test_a_class_of_ones_own_says_itself_what_is_put_back() -> None:
    class Counts:
        passes = 0

        def __iter__(self) -> Iterator[int]:
            self.passes += 1
            yield self.passes

        @contextmanager
        def left_as_found(self) -> Iterator[None]:
            kept = self.passes
            yield
            self.passes = kept

    data = Counts()
    with one_pass(data) as batches:
        assert list(batches) == [1]

    assert list(data) == [1]
