"""A DataLoader whose order and random numbers are a function of seed, epoch and example."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.support.rotation import share_of
from tests.support.training import refusal
from train_manager import InMemory, SeededDataLoader
from train_manager.data.readable import begin_epoch
from train_manager.data.reader import one_pass
from train_manager.data.seeded_dataset import SeededDataset, SeededSampler
from train_manager.testing import tiny_manager


class Draws(Dataset[Any]):
    """Its number, and what each of the three random states gives."""

    def __init__(self, length: int = 20) -> None:
        self.length = length
        self.told: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> tuple[int, float, float, Tensor]:
        return row, random.random(), float(np.random.rand()), torch.rand(())

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


class Processes(Draws):
    def __getitem__(self, row: int) -> Any:
        return os.getpid()


def mixed(examples: list[Any]) -> Tensor:
    """Made at random of the whole batch."""
    return torch.tensor([row for row, *_ in examples]) + torch.rand(()) + random.random() + np.random.rand()


def loader(length: int = 20, batch_size: int | None = 3, shuffle: bool = True, **others: Any) -> SeededDataLoader:
    return SeededDataLoader(Draws(length), batch_size, shuffle, **others)


def plain(batches: Any) -> list[Any]:
    return [[part.tolist() for part in batch] if isinstance(batch, list) else batch.tolist() for batch in batches]


def random_states() -> tuple[Any, ...]:
    return random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()


KEPT: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}
WORKERS: dict[str, dict[str, Any]] = {
    "no workers": {},
    "1": {"num_workers": 1},
    "2": {"num_workers": 2, "prefetch_factor": 4},
    "kept": {"num_workers": 2, "persistent_workers": True},
}
some_workers = pytest.mark.parametrize(
    "workers",
    [pytest.param(one, id=name, marks=[pytest.mark.whole] * (name == "1")) for name, one in WORKERS.items()],
)


# ---- what is read ------------------------------------------------------------------------------------------------


def test_the_order_is_that_of_in_memory() -> None:
    rows = InMemory(torch.arange(20), batch_size=3, shuffle=True, seed=4)
    data = SeededDataLoader(TensorDataset(torch.arange(20)), 3, True, seed=4)
    for _ in range(2):
        assert [batch.tolist() for batch in rows] == [batch.tolist() for (batch,) in data]


@some_workers
@pytest.mark.parametrize("collate", [None, mixed], ids=["", "mixed"])
def test_two_epochs_are_the_same_with_any_workers(workers: dict[str, Any], collate: Any) -> None:
    alone, data = loader(collate_fn=collate), loader(collate_fn=collate, **workers)

    assert [plain(data), plain(data)] == [plain(alone), plain(alone)]


@pytest.mark.slow  # the worker imports torch
@pytest.mark.whole
def test_workers_that_are_spawned_read_the_same() -> None:
    data = loader(collate_fn=mixed, num_workers=1, multiprocessing_context="spawn")

    assert plain(data) == plain(loader(collate_fn=mixed))


@pytest.mark.parametrize("batch_size", [3, None])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_it_gives_the_batches_of_a_data_loader(batch_size: int | None, drop_last: bool, shuffle: bool) -> None:
    dataset = TensorDataset(torch.arange(20))
    drop_last = drop_last and batch_size is not None
    data = SeededDataLoader(dataset, batch_size, shuffle, drop_last=drop_last)
    same = DataLoader(dataset, batch_size, sampler=SeededSampler(dataset, shuffle=shuffle), drop_last=drop_last)

    assert plain(map(list, data)) == plain(map(list, same))
    assert (len(data), data.batch_size, data.drop_last) == (len(same), batch_size, drop_last)


@some_workers
@pytest.mark.parametrize("collate", [None, mixed], ids=["", "mixed"])
def test_reading_moves_no_random_state(workers: dict[str, Any], collate: Any) -> None:
    data, before = loader(collate_fn=collate, **workers), random_states()
    list(data)
    next(iter(data))

    assert random_states() == before


def test_batches_of_tensors_are_mixed_by_the_seed_of_each() -> None:
    def noise(examples: Any) -> Tensor:
        return torch.rand(())

    data = SeededDataLoader(TensorDataset(torch.arange(20)), 5, collate_fn=noise)
    first, second = plain(data), plain(data)
    data.set_epoch(0)

    assert plain(data) == first
    assert len({*first, *second}) == 8


def test_examples_that_are_batches_are_drawn_and_collated_by_their_seed() -> None:
    def collate(example: Any) -> Tensor:
        return torch.rand(())

    alone, data = (
        loader(batch_size=None, collate_fn=collate, **workers) for workers in (WORKERS["no workers"], WORKERS["1"])
    )

    assert plain(alone) == plain(data)


def test_the_numbers_of_a_batchs_examples_are_known() -> None:
    data = loader(num_workers=1)

    assert all(data.example_index.equal(batch[0]) for batch in data)


# ---- stopped and resumed -----------------------------------------------------------------------------------------


@settings(max_examples=share_of(15), deadline=None)
@given(
    examples=st.integers(1, 20),
    batch_size=st.integers(1, 6),
    drop_last=st.booleans(),
    stop=st.integers(0, 40),
    before=st.sampled_from(["no workers", "1", "2"]),
    after=st.sampled_from(["no workers", "1", "2"]),
)
def test_the_rest_is_the_same_with_another_number_of_workers(
    examples: int, batch_size: int, drop_last: bool, stop: int, before: str, after: str
) -> None:
    examples += batch_size
    whole = loader(examples, batch_size, drop_last=drop_last)
    expected = [plain(whole) for _ in range(3)]
    first = loader(examples, batch_size, drop_last=drop_last, **WORKERS[before])
    epoch, stop = divmod(stop % (2 * len(first)), len(first))
    for _ in range(epoch):
        list(first)
    seen = plain(islice(first, stop))
    resumed = loader(examples, batch_size, drop_last=drop_last, **WORKERS[after])
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    resumed.set_epoch(epoch)

    assert [seen + plain(resumed), plain(resumed)] == expected[epoch : epoch + 2]


def test_what_workers_have_read_ahead_does_not_count() -> None:
    data = loader(num_workers=2, prefetch_factor=4)
    next(iter(data))

    assert data.state_dict() == {
        "epoch": 0,
        "batches": 1,
        "seed": 0,
        "examples": 20,
        "batch_size": 3,
        "shuffle": True,
    }


def test_what_was_given_is_not_read_again() -> None:
    asked: list[int] = []

    class Notes(Draws):
        def __getitem__(self, row: int) -> Any:
            asked.append(row)
            return row

    data = SeededDataLoader(Notes(), 3)
    data.load_state_dict({**data.state_dict(), "batches": 5})
    list(data)

    assert asked == [15, 16, 17, 18, 19]


def test_a_batch_that_could_not_be_read_does_not_count() -> None:
    class Broken(Draws):
        def __getitem__(self, row: int) -> Any:
            if row == 6:
                raise OSError("no such picture")
            return row

    data = SeededDataLoader(Broken(), 3)
    with pytest.raises(OSError, match="no such picture"):
        list(data)

    assert data.state_dict()["batches"] == 2


def test_after_the_last_batch_the_state_is_the_start_of_the_next_epoch() -> None:
    data = loader()
    batches = iter(data)
    for _ in range(len(data)):
        next(batches)

    assert (data.state_dict()["epoch"], data.state_dict()["batches"]) == (1, 0)


def test_its_length_is_that_of_an_epoch_also_within_one() -> None:
    data = loader()
    data.load_state_dict({**data.state_dict(), "batches": 5})

    assert (len(data), data.batches_done, len(list(data)), data.batches_done) == (7, 5, 2, 0)


@pytest.mark.parametrize("workers", [{}, KEPT], ids=["no workers", "kept"])
def test_the_state_knows_the_seed(workers: dict[str, Any]) -> None:
    first, resumed = loader(seed=3), loader(seed=5, **workers)
    next(iter(resumed))  # so that workers with the other seed are there
    seen = plain(islice(first, 4))
    resumed.load_state_dict(first.state_dict())

    assert seen + plain(resumed) == plain(loader(seed=3))


def test_another_batch_size_is_refused_within_an_epoch() -> None:
    data = loader(batch_size=4)
    next(iter(data))

    assert refusal(lambda: loader(batch_size=3).load_state_dict(data.state_dict())) == (
        "SeededDataLoader has batch_size=3, but its state was saved within an epoch with batch_size=4\n"
        "  give batch_size=4; it may be changed at the start of an epoch"
    )


def test_another_batch_size_is_taken_at_the_start_of_an_epoch() -> None:
    data, other = loader(batch_size=4), loader(batch_size=3)
    list(data)
    other.load_state_dict(data.state_dict())
    list(data)

    assert [len(batch[0]) for batch in other] == [3, 3, 3, 3, 3, 3, 2]


def test_another_order_is_refused_within_an_epoch() -> None:
    data = loader(shuffle=False)
    next(iter(data))

    assert refusal(lambda: loader(shuffle=True).load_state_dict(data.state_dict())) == (
        "SeededDataLoader has shuffle=True, but its state was saved within an epoch with shuffle=False\n"
        "  give shuffle=False; it may be changed at the start of an epoch"
    )


def test_the_state_of_other_data_is_refused() -> None:
    assert refusal(lambda: loader(19).load_state_dict(loader(20).state_dict())) == (
        "SeededDataLoader has 19 examples, but its state was saved with 20\n"
        "  give the data that the state was saved with, or leave the state out"
    )


def test_the_state_of_something_else_is_refused() -> None:
    assert refusal(lambda: loader().load_state_dict({"epoch": 1, "given": 2})) == (
        "SeededDataLoader was given the state of something else, with ['epoch', 'given']\n"
        "  give what state_dict() of the same data returned"
    )


# ---- several passes ----------------------------------------------------------------------------------------------


@some_workers
def test_an_evaluation_in_the_middle_changes_nothing(workers: dict[str, Any]) -> None:
    undisturbed, data = loader(), loader(**workers)
    expected, seen = [plain(undisturbed), plain(undisturbed)], []
    for _ in range(2):
        training = iter(data)
        seen.append(plain(islice(training, 3)))
        with one_pass(data) as batches:
            assert len(plain(batches)) == 7
        seen[-1] += plain(training)

    assert seen == expected


@some_workers
def test_a_second_pass_during_the_first_is_the_next_epoch(workers: dict[str, Any]) -> None:
    alone, data = loader(), loader(**workers)
    expected = plain(alone), plain(alone)
    first, second = iter(data), iter(data)
    both = [(next(first), next(second)) for _ in range(7)]

    assert tuple(map(plain, zip(*both, strict=True))) == expected


@some_workers
def test_a_pass_that_is_left_is_an_epoch_too(workers: dict[str, Any]) -> None:
    alone, data = loader(), loader(**workers)
    list(alone)
    for _ in data:
        break

    assert plain(data) == plain(alone)


def processes(batches: Any) -> set[int]:
    return {number for batch in batches for number in batch.tolist()}


def test_kept_workers_stay_from_pass_to_pass() -> None:
    data = SeededDataLoader(Processes(), 3, **KEPT)
    found = processes(data)
    with one_pass(data) as batches:
        found |= processes(batches)
    next(iter(data))

    assert len(found | processes(data)) == 1


def test_a_pass_during_another_has_workers_of_its_own_which_stay_too() -> None:
    data = SeededDataLoader(Processes(), 3, **KEPT)
    found = []
    for _ in range(2):
        training = iter(data)
        own = processes([next(training)])
        with one_pass(data) as batches:
            found.append((own, processes(batches)))
        list(training)

    assert all(own.isdisjoint(others) for own, others in found)
    assert len(set.union(*map(set.union, *zip(*found, strict=True)))) == 2


def test_kept_workers_of_a_pass_that_failed_are_not_used_again() -> None:
    data, found = SeededDataLoader(Processes(), 3, **KEPT), []
    for _ in range(2):
        batches: Any = iter(data)
        found.append(processes([next(batches)]))
        with pytest.raises(OSError, match="too many open files"):
            batches.throw(OSError("too many open files"))

    assert found[0].isdisjoint(found[1])


def test_kept_workers_end_with_their_loader() -> None:
    data = SeededDataLoader(Processes(), 3, **KEPT)
    (process,) = processes(data)
    os.kill(process, 0)
    del data
    gc.collect()

    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
@pytest.mark.parametrize("workers", [{}, KEPT], ids=["no workers", "kept"])
def test_a_copy_is_where_its_original_is_and_reads_for_itself(copied: Any, workers: dict[str, Any]) -> None:
    data = loader(**workers)
    list(data)
    training = iter(data)
    next(training)
    other = copied(data)
    before = other.state_dict()["batches"]
    list(other)
    next(training)

    assert (before, other.state_dict()["epoch"], data.state_dict()["batches"]) == (1, 3, 2)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_has_workers_of_its_own(copied: Any) -> None:
    data = SeededDataLoader(Processes(), 3, **KEPT)
    own = processes(data)

    assert own.isdisjoint(processes(copied(data)))


# ---- epochs ------------------------------------------------------------------------------------------------------


def test_the_dataset_is_told_the_epoch_once_whoever_says_it() -> None:
    data = loader()
    begin_epoch(data, 3)
    list(data)
    list(data)

    assert data.dataset.told == [3, 4]  # type: ignore[attr-defined]


def test_an_epoch_that_is_named_to_all_parts_keeps_a_loaded_position() -> None:
    first, resumed = loader(), loader()
    seen = plain(islice(first, 2))
    resumed.load_state_dict(first.state_dict())
    begin_epoch(resumed, 0)

    assert seen + plain(resumed) == plain(loader())


# ---- what is refused ---------------------------------------------------------------------------------------------


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


class NoLength(Dataset[int]):
    def __getitem__(self, row: int) -> int:
        return row


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (
            Stream(),
            "a Stream, an IterableDataset, whose position is not known\n"
            "  give a dataset with dataset[i] and len(dataset), or use torch's DataLoader",
        ),
        (
            SeededDataset(range(3)),
            "a SeededDataset, but it seeds the examples itself\n  give the dataset that is in it, and seed=...",
        ),
        (
            NoLength(),
            "a NoLength, which lacks len(dataset) or dataset[i]\n  give a dataset with dataset[i] and len(dataset)",
        ),
    ],
)
def test_a_dataset_that_it_cannot_number_is_refused(dataset: Any, text: str) -> None:
    assert refusal(lambda: SeededDataLoader(dataset)) == f"SeededDataLoader was given {text}"


OTHER_ORDERS: dict[str, tuple[Any, str]] = {
    "sampler": ([0], "for an order of your own: DataLoader(SeededDataset(dataset), sampler=...)"),
    "batch_sampler": ([[0]], "for an order of your own: DataLoader(SeededDataset(dataset), batch_sampler=...)"),
    "generator": (
        torch.Generator(),
        "give seed=..., which determines the order and the random numbers of the examples",
    ),
    "in_order": (False, "leave it out: the position in the data is a number only if the batches come in order"),
}


@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_an_argument_that_determines_the_order_otherwise_is_refused(name: str) -> None:
    value, cure = OTHER_ORDERS[name]

    assert refusal(lambda: SeededDataLoader([1], **{name: value})) == (
        f"SeededDataLoader was given {name}=..., but its order is a function of its seed\n  {cure}"
    )


def test_these_arguments_may_have_their_usual_values() -> None:
    usual: dict[str, Any] = {"sampler": None, "batch_sampler": None, "generator": None, "in_order": True}

    assert len(SeededDataLoader([1], **usual)) == 1


def test_no_batch_at_all_is_refused() -> None:
    assert refusal(lambda: loader(2, drop_last=True)) == (
        "SeededDataLoader has 2 examples, fewer than one batch of 3, and drop_last drops them\n"
        "  give a smaller batch_size, or drop_last=False"
    )


def test_a_negative_seed_is_refused() -> None:
    assert refusal(lambda: loader(seed=-1)) == (
        "SeededDataLoader's seed must be a whole number of at least 0, but is -1"
    )


def test_it_shows_what_it_gives() -> None:
    assert repr(loader()) == "SeededDataLoader(20 rows, 7 batches of 3, shuffle=True, num_workers=0)"


# ---- in a training -----------------------------------------------------------------------------------------------


def test_a_train_manager_trains_on_it_and_evaluates_it() -> None:
    inputs = torch.rand(40, 2)
    dataset = TensorDataset(inputs, (inputs.sum(dim=1) > 1).long())
    data = SeededDataLoader(dataset, 16, shuffle=True, num_workers=1)
    tm = tiny_manager(train_data=data, eval_data={"valid": data}, epochs=2)
    tm.train()

    assert tm.step_num == 6
