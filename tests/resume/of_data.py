"""Trainings that continue in the middle of their data, of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.resume.trainings import EXAMPLES, TRAININGS, Training, batches, examples, in_memory, network, training
from train_manager import (
    Endless,
    InMemory,
    Interleaved,
    Rows,
    SeededDataLoader,
    Together,
    TrainManager,
)
from train_manager.extensions import Accumulate


@training()
def dropout_and_shuffled_in_memory() -> dict[str, Any]:
    return {}


@training()
def batches_in_a_list() -> dict[str, Any]:
    return {"train_data": batches()}


class Augmented(Dataset[Any]):
    """Draws from python, numpy and torch for each example."""

    def __init__(self) -> None:
        self.inputs, self.targets = examples()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        noise = torch.rand(4) * random.random() + float(np.random.rand())
        return self.inputs[row] + noise, self.targets[row]


@training()
def shuffled_rows() -> dict[str, Any]:
    return {"train_data": Rows(TensorDataset(*examples()), batch_size=8, shuffle=True)}


@training()
def rows_with_augmentation() -> dict[str, Any]:
    return {"train_data": Rows(Augmented(), batch_size=8, shuffle=True)}


def augmented(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A batch with noise, drawn from python, numpy and torch."""
    inputs, targets = batch
    return inputs + torch.rand_like(inputs) * random.random() + float(np.random.rand()), targets


@training()
def in_memory_with_a_random_transform() -> dict[str, Any]:
    return {"train_data": InMemory(*examples(), batch_size=8, shuffle=True, transform=augmented)}


@training()
def seeded_data_loader_with_augmentation() -> dict[str, Any]:
    return {"train_data": SeededDataLoader(Augmented(), batch_size=8, shuffle=True)}


@training()
def epochs_cut_within_a_pass() -> dict[str, Any]:
    return {"steps_per_epoch": 3, "epochs": 3}


@training()
def epochs_longer_than_a_pass() -> dict[str, Any]:
    return {"steps_per_epoch": 6}


@training()
def epochs_cut_within_a_pass_over_a_seeded_data_loader() -> dict[str, Any]:
    loader = SeededDataLoader(Augmented(), batch_size=8, shuffle=True)
    return {"train_data": loader, "steps_per_epoch": 3, "epochs": 3}


@training()
def endless_data() -> dict[str, Any]:
    return {"train_data": Endless(in_memory()), "steps_per_epoch": 3, "epochs": 3}


@training()
def interleaved_data() -> dict[str, Any]:
    sets = {"web": in_memory(), "books": in_memory(seed=3, batch_size=5)}
    return {"train_data": Interleaved(sets, ratios={"web": 1, "books": 2}, seed=1)}


@training()
def interleaved_data_in_cut_epochs() -> dict[str, Any]:
    sets = {"web": in_memory(), "books": in_memory(seed=3, batch_size=5)}
    return {"train_data": Interleaved(sets, seed=1), "steps_per_epoch": 5}


class Unsized:
    """Batches whose number nobody knows."""

    def set_epoch(self, epoch: int) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(batches())


@training()
def data_without_a_length() -> dict[str, Any]:
    return {"train_data": Unsized(), "extensions": [Accumulate(2)]}


class OfBoth(nn.Module):
    """Takes a batch of each set."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, labeled: Any, unlabeled: Any) -> Tensor:
        own: Tensor = F.cross_entropy(self.network(labeled[0]), labeled[1])
        other: Tensor = self.network(unlabeled[0]).square().mean()
        return own + 0.1 * other


@training()
def data_together() -> dict[str, Any]:
    sets = {"labeled": in_memory(batch_size=10), "unlabeled": in_memory(seed=3)}
    given = {"train_data": Together(sets), "eval_data": None}
    return {**given, "model": OfBoth(), "loss": lambda prediction: prediction}


# ---- torch's DataLoader ----------------------------------------------------------------------------------------------


def loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    dataset = TensorDataset(*examples()) if dataset is None else dataset
    return DataLoader(dataset, **{"batch_size": 8, "shuffle": True, **options})


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def weighted(**options: Any) -> WeightedRandomSampler:
    return WeightedRandomSampler([*map(float, range(1, 27))], 26, **options)


@training()
def shuffled_data_loader() -> dict[str, Any]:
    return {"train_data": loader()}


@training()
def shuffled_data_loader_with_augmentation() -> dict[str, Any]:
    return {"train_data": loader(Augmented())}


@training()
def data_loader_with_a_generator_of_its_own() -> dict[str, Any]:
    return {"train_data": loader(generator=seeded()), "epochs": 3}


@training()
def epochs_cut_within_a_pass_over_a_data_loader_with_a_generator() -> dict[str, Any]:
    return {"train_data": loader(generator=seeded()), "steps_per_epoch": 3, "epochs": 3}


@training()
def data_loader_with_a_weighted_sampler() -> dict[str, Any]:
    return {"train_data": loader(shuffle=False, sampler=weighted())}


@training()
def data_loader_with_a_weighted_sampler_that_has_a_generator() -> dict[str, Any]:
    return {"train_data": loader(shuffle=False, sampler=weighted(generator=seeded()))}


@training()
def data_loader_whose_workers_augment() -> dict[str, Any]:
    return {"train_data": loader(Augmented(), num_workers=2)}


@training()
def data_loader_that_keeps_its_workers() -> dict[str, Any]:
    return {"train_data": loader(num_workers=1, persistent_workers=True), "epochs": 3}


@training()
def data_loader_with_a_generator_that_keeps_its_workers() -> dict[str, Any]:
    kept = loader(num_workers=1, persistent_workers=True, generator=seeded())
    return {"train_data": kept, "epochs": 3}


@training()
def interleaved_shuffled_data_loaders() -> dict[str, Any]:
    return {
        "train_data": Interleaved({"web": loader(), "books": loader(generator=seeded(), batch_size=5)}),
        "epochs": 3,
    }


@training()
def endless_shuffled_data_loader() -> dict[str, Any]:
    return {"train_data": Endless(loader()), "steps_per_epoch": 3, "epochs": 3}


class Stream(IterableDataset[Any]):
    """Examples in an order that is drawn as a pass begins."""

    def __init__(self) -> None:
        self.inputs, self.targets = examples()

    def order(self) -> list[int]:
        return [*map(int, torch.randperm(len(self.inputs)))]

    def __iter__(self) -> Iterator[Any]:
        for row in self.order():
            yield self.inputs[row], self.targets[row]


class StreamWithAPosition(Stream):
    """It knows its order, and how far it has come; at the end of a pass it stays there until the next one begins."""

    given = start = 0
    rows: list[int]

    def order(self) -> list[int]:
        self.rows = self.rows if self.start else super().order()
        self.given, self.start = self.start, 0
        return self.rows[self.given :]

    def __iter__(self) -> Iterator[Any]:
        for example in super().__iter__():
            self.given += 1
            yield example

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start, self.rows = state["given"], state["rows"]


@training()
def data_loader_over_a_stream() -> dict[str, Any]:
    return {"train_data": loader(Stream(), shuffle=False)}


@training()
def data_loader_over_a_stream_that_tells_its_position() -> dict[str, Any]:
    return {"train_data": loader(StreamWithAPosition(), shuffle=False)}


class OwnNoise(Dataset[Any]):
    """Draws from a generator that it saves itself."""

    def __init__(self) -> None:
        self.inputs, self.targets = examples()
        self.noise = np.random.default_rng(1)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.inputs[row] + float(self.noise.random()), self.targets[row]

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise.bit_generator.state = state["noise"]


@training()
def data_loader_over_a_dataset_with_a_state() -> dict[str, Any]:
    return {"train_data": loader(OwnNoise())}


@training()
def interleaved_data_loaders_over_datasets_with_a_state() -> dict[str, Any]:
    streams = {"a": loader(OwnNoise()), "b": loader(StreamWithAPosition(), shuffle=False)}
    return {"train_data": Interleaved(streams)}


class LoaderWithAState(DataLoader[Any]):
    """Tells its position itself, as torchdata's does; the order of its pass begins with a draw."""

    given = start = 0
    rows: list[int]

    def __iter__(self) -> Any:
        self.rows = self.rows if self.start else [*map(int, torch.randperm(EXAMPLES))]
        for number, row in enumerate(self.rows[self.start :], self.start + 1):
            self.given = number
            inputs, targets = self.dataset[row]
            yield inputs[None], targets[None]
        self.start = self.given = 0

    def __len__(self) -> int:
        return EXAMPLES

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "rows": getattr(self, "rows", [])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = self.given = state["given"]
        self.rows = state["rows"]


@training()
def data_loader_with_a_state() -> dict[str, Any]:
    return {"train_data": LoaderWithAState(TensorDataset(*examples()))}


# ---- iterables of the user's own -------------------------------------------------------------------------------------


class Wrapper:
    """Gives the batches of other data, with other inputs."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        for inputs, targets in self.inner:
            yield 2 * inputs, targets


class Sized(Wrapper):
    """It knows its length, and its iterator is that of the other data."""

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner)


WRAPPERS: dict[str, Callable[[], Any]] = {
    "a_loader_with_a_generator": lambda: Wrapper(loader(generator=seeded())),
    "a_loader_with_workers": lambda: Wrapper(loader(num_workers=1)),
    "data_in_memory": lambda: Wrapper(in_memory()),
    "interleaved_loaders": lambda: Sized(Interleaved({"a": loader(), "b": loader(generator=seeded())})),
    "another_wrapper": lambda: Wrapper(Sized(loader(generator=seeded()))),
}


@training()
def interleaved_wrappers() -> dict[str, Any]:
    return {"train_data": Interleaved({"a": Wrapper(loader()), "b": Sized(loader(generator=seeded()))})}


def three_epochs_of(make: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"train_data": make(), "epochs": 3}


TRAININGS |= {
    f"wrapper_of_{name}": Training(three_epochs_of(make), TrainManager.train, TrainManager)
    for name, make in WRAPPERS.items()
}
