"""Fingerprints of data: they differ where the data differ, and looking changes nothing."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from train_manager import Endless, InMemory, Interleaved, Rows, SeededDataLoader, recorded
from train_manager.data.fingerprint import fingerprint
from train_manager.runs.comparing.run_facts import fingerprint_rows

X = torch.arange(600.0).view(200, 3)
Y = torch.arange(200)
CHANGED = X.clone()
CHANGED[199, 2] += 1  # the last row is always among those that are hashed


def batches(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(16), Y.split(16), strict=True))


def random_states() -> Any:
    return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()  # type: ignore[index]


class Pictures(Dataset[Any]):
    """A dataset of a user's, of which no method may be called but ``__len__``."""

    def __init__(self, x: Tensor) -> None:
        self.data, self.targets = x, Y

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Any:
        raise AssertionError("an example was loaded")


class Stream(IterableDataset[Any]):
    asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 8

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the stream was read")


@recorded
class Digits:
    def __init__(self, path: str, size: int = 28, token: str = "") -> None: ...

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("the data was read")


MAKERS: dict[str, Callable[[Tensor], Any]] = {
    "a list of pairs": batches,
    "a tuple of dicts": lambda x: tuple({"inputs": one, "targets": other} for one, other in batches(x)),
    "a list of arrays": lambda x: [one.numpy() for one in x.split(16)],
    "a list of datasets": lambda x: [TensorDataset(Y), Pictures(x)],
    "a list of numbers": lambda x: [x.flatten().tolist()],
    "a DataLoader of tensors": lambda x: DataLoader(TensorDataset(x, Y), batch_size=8, shuffle=True),
    "a DataLoader of a dataset": lambda x: DataLoader(Pictures(x), batch_size=8),
    "a DataLoader of datasets": lambda x: DataLoader(ConcatDataset([TensorDataset(Y), Pictures(x)]), batch_size=8),
    "a DataLoader of a part": lambda x: DataLoader(Subset(TensorDataset(x), range(100)), batch_size=8),
    "a DataLoader of a list": lambda x: DataLoader(cast(Any, x.tolist()), batch_size=8),
    "a SeededDataLoader": lambda x: SeededDataLoader(TensorDataset(x, Y), batch_size=8, shuffle=True),
    "InMemory": lambda x: InMemory(x, Y, batch_size=8, shuffle=True),
    "InMemory by name": lambda x: InMemory({"inputs": x, "targets": Y}, batch_size=8),
    "InMemory of arrays": lambda x: InMemory(x.numpy(), batch_size=8),
    "Rows of columns": lambda x: Rows({"age": x[:, 2], "name": ["Ann"] * len(x)}, batch_size=8),
    "Rows of a dataset": lambda x: Rows(Pictures(x), batch_size=8),
    "Endless": lambda x: Endless(InMemory(x, batch_size=8)),
    "Interleaved": lambda x: Interleaved({"a": batches(X), "b": InMemory(x, batch_size=8)}),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def between(one: Any, other: Any) -> list[str]:
    """What is told of two data sets."""
    there, here = (fingerprint_rows({"data": fingerprint(data)}) for data in (one, other))
    return [
        f"{name} {there.get(name, 'none')} there, {here.get(name, 'none')} here"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]


@every
def test_the_same_data_has_the_same_fingerprint(make: Callable[[Tensor], Any]) -> None:
    found = fingerprint(make(X.clone()))

    assert json.loads(json.dumps(found)) == fingerprint(make(X))


@every
def test_a_changed_number_in_memory_is_a_difference(make: Callable[[Tensor], Any]) -> None:
    found = between(make(X), make(CHANGED))

    assert found
    assert all(text.partition(" ")[0].endswith("sha256") for text in found)


@every
def test_looking_moves_no_random_state_and_no_position(make: Callable[[Tensor], Any]) -> None:
    data = make(X)
    position: Any = getattr(data, "state_dict", dict)()
    before = random_states()
    fingerprint(data)

    assert random_states() == before
    assert getattr(data, "state_dict", dict)() == position


@pytest.mark.parametrize("kind", ["InMemory", "InMemory by name", "Rows of columns", "Endless", "Interleaved"])
def test_data_that_a_training_has_read_has_the_fingerprint_that_it_had(kind: str) -> None:
    data = MAKERS[kind](X)
    before = fingerprint(data)
    for _ in zip(range(3), data):  # noqa: B905 - some have no end
        pass

    assert fingerprint(data) == before


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (DataLoader(Pictures(X), 8), DataLoader(Pictures(X), 16), ["data.length 25 there, 13 here", "8 there, 16"]),
        (DataLoader(Pictures(X), 8), DataLoader(Pictures(X), 8, shuffle=True), ["data.sampler"]),
        (InMemory(X, batch_size=8), InMemory(X, batch_size=8, seed=1), ["data.seed 0 there, 1 here"]),
        (InMemory(X, batch_size=8), InMemory(X, batch_size=8, shuffle=True), ["data.shuffle False there, True here"]),
        (
            DataLoader(Subset(cast(Any, X), [1, 2])),
            DataLoader(Subset(cast(Any, X), [1, 3])),
            ["data.parts.dataset.parts.indices.sha256"],
        ),
        ([X], [X.double()], ["data.first float32 [200, 3] there, float64 [200, 3] here", "sha256"]),
        (Digits("a"), Digits("b"), ["data.recorded.arguments.path a there, b here"]),
    ],
)
def test_a_difference_in_words(one: Any, other: Any, told: list[str]) -> None:
    found = between(one, other)

    assert len(found) == len(told), found
    assert all(part in each for part, each in zip(told, found, strict=True)), found


def test_data_of_a_users_class_is_told_by_its_class_its_length_and_what_it_was_made_with() -> None:
    found = fingerprint(Digits("digits.bin", token="private"))
    assert found is not None

    assert found["kind"].endswith("test_fingerprint:Digits")
    assert found["recorded"]["arguments"]["path"] == "digits.bin"
    assert "private" not in json.dumps(found)


def test_a_stream_is_not_asked_for_its_length() -> None:
    """Torch would count its batches from then on, and warn if there are more."""
    stream = Stream()
    found = fingerprint(DataLoader(stream, batch_size=4))
    assert found is not None
    assert stream.asked == 0

    assert (found["kind"], found["batch_size"]) == ("torch.utils.data.dataloader:DataLoader", 4)


def test_a_length_that_raises_is_left_out() -> None:
    class Broken(Digits):
        def __len__(self) -> int:
            raise RuntimeError

    found = fingerprint(Broken("a"))
    assert found is not None

    assert "length" not in found


def test_data_that_contains_itself_has_a_fingerprint() -> None:
    data = Pictures(X)
    vars(data)["dataset"] = data

    assert fingerprint(data)


@pytest.mark.parametrize(
    "array",
    [
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.complex64).conj(),
        torch.zeros(0, 5),
        torch.tensor(1.0, requires_grad=True),
        torch.zeros(5000, 300).t(),
        torch.zeros(2, 3, 400, 500),
        torch.zeros(3, dtype=torch.bool),
        np.zeros((70, 5), dtype=">f8")[::2],
        np.array(["a", None, 3], dtype=object),
        np.zeros(5, dtype="datetime64[s]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_all_kinds_have_one(array: Any) -> None:
    found = fingerprint([array])
    assert found is not None

    assert "unread" not in found
    assert len(found["sha256"]) == 64


@pytest.mark.parametrize(
    "array", [torch.zeros(3, device="meta"), torch.zeros(3, 3).to_sparse()], ids=["meta", "sparse"]
)
def test_an_array_that_cannot_be_read_is_said_to_be_so(array: Tensor) -> None:
    found = fingerprint([array])
    assert found is not None

    assert "unread" in found


def test_a_tensor_and_an_array_of_the_same_numbers_have_the_same_contents() -> None:
    one, other = fingerprint([X]), fingerprint([X.numpy()])

    assert one is not None
    assert other is not None
    assert one["sha256"] == other["sha256"]


def test_at_most_some_rows_are_read(tmp_path: Path) -> None:
    """A file of 8 GB with holes, of which each page that is read is a fault: two million for all."""
    array = np.memmap(tmp_path / "large.bin", dtype=np.float32, mode="w+", shape=(2_000_000, 1000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    fingerprint([array])

    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 20_000
