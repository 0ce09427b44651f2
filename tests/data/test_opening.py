"""When sets are opened and read to their end, by which a shuffled DataLoader draws what it draws in a loop by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from train_manager import Endless, Interleaved, SeededDataLoader, Together
from train_manager.testing import tiny_manager

EPOCHS = 3


class Augmented(Dataset[Tensor]):
    """Numbers to which each read adds a random one, unless it is still."""

    def __init__(self, examples: int, *, is_still: bool = False) -> None:
        self.examples, self.is_still = examples, is_still

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index)]) if self.is_still else index + torch.rand(1)


def loader(examples: int, workers: int = 0, *, is_still: bool = False) -> DataLoader[Tensor]:
    return DataLoader(Augmented(examples, is_still=is_still), batch_size=2, shuffle=True, num_workers=workers)


def drawn(batches: Iterator[Any]) -> list[Any]:
    """Return the numbers of batches, between which a training draws, and the random state that they leave behind."""
    torch.manual_seed(0)
    given: list[Any] = []
    for batch in batches:
        given.append(batch)
        torch.rand(1)  # as dropout does
    return [*given, torch.rand(1)]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.equal(other)
    return len(one) == len(other) and all(map(equal, one, other))


def pairs(data: Iterable[Any]) -> Iterator[Any]:
    for _ in range(EPOCHS):
        for batch in data:
            yield [batch["a"], batch["b"]]


def singles(data: Iterable[Any]) -> Iterator[Any]:
    for _ in range(EPOCHS):
        for batch in data:
            yield batch.batch


# ---- as by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("examples", "until", "workers"),
    [((6, 6), "longest", 0), ((7, 7), "longest", 0), ((6, 9), "shortest", 0), ((7, 7), "longest", 1)],
)
def test_sets_at_once_are_drawn_as_zip_draws_them(examples: tuple[int, int], until: Any, workers: int) -> None:
    def by_zip() -> Iterator[Any]:
        a, b = (loader(size, workers) for size in examples)
        for _ in range(EPOCHS):
            yield from map(list, zip(a, b, strict=False))

    a, b = (loader(size, workers) for size in examples)

    assert equal(drawn(pairs(Together({"a": a, "b": b}, until=until))), drawn(by_zip()))


def test_the_batch_that_zip_reads_of_a_longer_set_and_drops_is_not_read() -> None:
    def by_zip(*, is_still: bool) -> Iterator[Any]:
        a, b = loader(9, is_still=is_still), loader(6)
        for _ in range(EPOCHS):
            yield from map(list, zip(a, b, strict=False))

    def ours(*, is_still: bool) -> Iterator[Any]:
        return pairs(Together({"a": loader(9, is_still=is_still), "b": loader(6)}, until="shortest"))

    assert equal(drawn(ours(is_still=True)), drawn(by_zip(is_still=True)))
    assert not equal(drawn(ours(is_still=False)), drawn(by_zip(is_still=False)))


def test_a_shorter_set_that_begins_again_is_drawn_as_in_a_loop_by_hand() -> None:
    def by_hand() -> Iterator[Any]:
        labeled, unlabeled = loader(4), loader(14)
        for _ in range(EPOCHS):
            again, rest = iter(labeled), iter(unlabeled)
            for _ in range(len(unlabeled)):
                try:
                    few = next(again)
                except StopIteration:
                    again = iter(labeled)
                    few = next(again)
                yield [few, next(rest)]

    assert equal(drawn(pairs(Together({"a": loader(4), "b": loader(14)}))), drawn(by_hand()))


def test_an_endless_set_is_drawn_as_one_that_is_opened_first_and_begins_again() -> None:
    def by_hand() -> Iterator[Any]:
        for _ in range(EPOCHS):
            several, few = iter(loader(14)), loader(4)
            again = iter(few)
            for one in several:
                try:
                    other = next(again)
                except StopIteration:
                    again = iter(few)
                    other = next(again)
                yield [one, other]

    assert equal(drawn(pairs(Together({"a": loader(14), "b": Endless(loader(4))}))), drawn(by_hand()))


@pytest.mark.parametrize("workers", [0, 1])
def test_sets_in_turns_are_drawn_as_in_a_loop_by_hand(workers: int) -> None:
    def by_hand() -> Iterator[Any]:
        loaders = {"a": loader(8, workers), "b": loader(4, workers)}
        for _ in range(EPOCHS):
            iterators = {name: iter(data) for name, data in loaders.items()}
            for name in ("a", "b", "a") * 2:
                yield next(iterators[name])

    data = {"a": loader(8, workers), "b": loader(4, workers)}

    assert equal(drawn(singles(Interleaved(data, ratios={"a": 2, "b": 1}))), drawn(by_hand()))


# ---- when ----------------------------------------------------------------------------------------------------------


class Noted:
    """Batches that write down when they are opened, read and found to be at their end."""

    def __init__(self, name: str, end: int, noted: list[str], *, endless: bool = False) -> None:
        self.name, self.end, self.noted, self.endless = name, end, noted, endless

    def __len__(self) -> int:
        return self.end

    def __iter__(self) -> Iterator[int]:
        self.noted.append(f"open {self.name}")
        return self._batches()

    def _batches(self) -> Iterator[int]:
        for number in range(self.end):
            self.noted.append(f"read {self.name}")
            yield number
        self.noted.append(f"end {self.name}")


def test_all_sets_are_opened_in_their_order_before_the_first_batch_is_read() -> None:
    noted: list[str] = []
    next(iter(Together({"a": Noted("a", 2, noted), "b": Noted("b", 2, noted)})))

    assert noted == ["open a", "open b", "read a", "read b"]


def test_sets_in_turns_are_opened_before_the_first_batch_is_read() -> None:
    noted: list[str] = []
    next(iter(Interleaved({"a": Noted("a", 2, noted), "b": Noted("b", 2, noted)})))

    assert noted == ["open a", "open b", "read a"]


def test_a_set_that_a_function_chooses_is_opened_at_its_first_turn() -> None:
    noted: list[str] = []
    next(iter(Interleaved({"a": Noted("a", 2, noted), "b": Noted("b", 2, noted)}, choose=lambda: "b")))

    assert noted == ["open b", "read b"]


def test_a_set_that_begins_again_is_opened_at_its_turn_and_all_are_read_in_their_order() -> None:
    noted: list[str] = []
    for _ in Together({"a": Noted("a", 1, noted), "b": Noted("b", 2, noted)}):
        noted.append("train")

    rounds = ["open a", "open b", "read a", "read b", "train", "end a", "open a", "read a", "read b", "train"]
    assert noted == [*rounds, "end a", "end b"]


def test_where_reading_finds_the_end_no_set_begins_again_in_vain() -> None:
    noted: list[str] = []

    class Unsized(Noted):
        __len__ = None  # type: ignore[assignment]

    for _ in Together({"a": Noted("a", 1, noted), "b": Unsized("b", 2, noted)}):
        noted.append("train")

    rounds = ["open a", "open b", "read a", "read b", "train", "read b", "end a", "open a", "read a", "train", "end b"]
    assert noted == [*rounds, "end a"]


def test_a_set_that_is_cut_short_or_endless_is_not_read_past_its_last_batch() -> None:
    noted: list[str] = []
    sets = {"a": Noted("a", 1, noted), "b": Noted("b", 2, noted), "c": Noted("c", 1, noted, endless=True)}
    list(Together(sets, until="shortest"))

    assert noted == ["open a", "open b", "open c", "read a", "read b", "read c", "end a"]


def test_in_a_training_the_end_of_a_set_is_read_after_its_last_batch_was_trained_on() -> None:
    noted: list[str] = []
    x = torch.rand(4, 2)

    class Pairs(Noted):
        def _batches(self) -> Iterator[Any]:
            for _ in super()._batches():
                yield x

    tm = tiny_manager(
        model=nn.Linear(2, 1),
        loss=lambda prediction: prediction.mean(),
        train_data=Interleaved({"a": Pairs("a", 1, noted), "b": Pairs("b", 1, noted)}),
        eval_data={},
    )
    tm.add_extension(post_train_step_batch=lambda: noted.append("trained"))
    tm.train()

    assert noted == ["open a", "open b", "read a", "trained", "read b", "trained", "end a", "end b"]


def test_a_pass_that_is_left_is_not_read_on() -> None:
    noted: list[str] = []
    data = iter(Together({"a": Noted("a", 1, noted)}))
    next(data)
    data.close()  # type: ignore[attr-defined]

    assert noted == ["open a", "read a"]


# ---- resumed -------------------------------------------------------------------------------------------------------


class Stateful:
    """Data with a state that draw a number as they are opened, as torchdata's StatefulDataLoader does."""

    def __init__(self) -> None:
        self.given = self.first = 0

    def __iter__(self) -> Iterator[int]:
        torch.rand(1)
        return self._batches()

    def _batches(self) -> Iterator[int]:
        first, self.first = self.first, 0
        for number in range(first, 6):
            self.given = number + 1
            yield number

    def __len__(self) -> int:
        return 6

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = self.given = state["given"]


def sets_of_a_resumed_epoch() -> dict[str, Any]:
    few, many = torch.arange(4), torch.arange(12)
    in_order = DataLoader(TensorDataset(torch.arange(3)), batch_size=1)  # draws a number for each pass
    seeded = SeededDataLoader(TensorDataset(many), batch_size=1, shuffle=True)
    again = SeededDataLoader(TensorDataset(few), batch_size=1, shuffle=True)
    return {"a": seeded, "late": in_order, "b": again, "stateful": Stateful()}


NAMES = ["a", "b", "late", "stateful", "late", "b", "stateful", "b", "a", "b"] * 5


def chosen(turn: int) -> Interleaved:
    return Interleaved(sets_of_a_resumed_epoch(), choose=iter(NAMES[turn:]).__next__)


KINDS: dict[str, Callable[[int], Together | Interleaved]] = {
    "longest": lambda _: Together(sets_of_a_resumed_epoch()),
    "shortest": lambda _: Together(sets_of_a_resumed_epoch(), until="shortest"),
    "in turns": lambda _: Interleaved(sets_of_a_resumed_epoch(), ratios={"a": 4, "late": 1, "b": 1, "stateful": 2}),
    "chosen": chosen,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stops", [[1], [2], [3], [4], [5], [8], [1, 2], [1, 5], [2, 3, 5]])
def test_an_epoch_that_continues_draws_as_one_that_was_not_left(kind: str, stops: list[int]) -> None:
    def read(data: Together | Interleaved, count: int) -> None:
        stream = (batch for _ in range(9) for batch in data)
        seen.extend([repr(batch), torch.rand(1).item()] for batch in islice(stream, count))

    seen: list[Any] = []
    torch.manual_seed(0)
    read(KINDS[kind](0), 20)
    whole, seen = seen, []

    torch.manual_seed(0)
    data, turn = KINDS[kind](0), 0
    for stop in stops:
        read(data, stop - turn)
        state, turn = copy.deepcopy(data.state_dict()), stop
        data = KINDS[kind](stop)
        data.load_state_dict(state)
    read(data, 20 - turn)

    assert seen == whole
