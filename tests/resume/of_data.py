"""Trainings that go on in the middle of their data, of each kind."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.resume.trainings import batches, examples, in_memory, network, training
from train_manager import (
    Endless,
    Interleaved,
    Rows,
    SeededDataLoader,
    Together,
)


@training()
def dropout_and_shuffled_in_memory() -> dict[str, Any]:
    return {}


@training()
def neither_dropout_nor_augmentation() -> dict[str, Any]:
    return {"model": nn.Linear(4, 2)}


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


@training()
def seeded_data_loader_with_augmentation() -> dict[str, Any]:
    return {"train_data": SeededDataLoader(Augmented(), batch_size=8, shuffle=True)}


@training()
def unshuffled_data_loader() -> dict[str, Any]:
    return {"train_data": DataLoader(TensorDataset(*examples()), batch_size=8)}


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
def epochs_cut_within_a_pass_over_a_list() -> dict[str, Any]:
    return {"train_data": batches(), "steps_per_epoch": 3, "epochs": 3}


@training()
def endless_data() -> dict[str, Any]:
    return {"train_data": Endless(in_memory()), "steps_per_epoch": 3, "epochs": 3}


@training()
def endless_list() -> dict[str, Any]:
    return {"train_data": Endless(batches()), "steps_per_epoch": 3, "epochs": 3}


@training()
def interleaved_data() -> dict[str, Any]:
    sets = {"web": in_memory(), "books": in_memory(seed=3, batch_size=5)}
    return {"train_data": Interleaved(sets, ratios={"web": 1, "books": 2}, seed=1)}


@training()
def interleaved_lists() -> dict[str, Any]:
    return {"train_data": Interleaved({"web": batches(), "books": batches()[:3]}, ratios={"web": 2, "books": 1})}


@training()
def interleaved_data_loaders() -> dict[str, Any]:
    loaders = {name: DataLoader(TensorDataset(*examples()), batch_size=8) for name in ("web", "books")}
    return {"train_data": Interleaved(loaders)}


@training()
def endless_data_loader() -> dict[str, Any]:
    loader = DataLoader(TensorDataset(*examples()), batch_size=8)
    return {"train_data": Endless(loader), "steps_per_epoch": 3, "epochs": 3}


@training()
def interleaved_data_in_cut_epochs() -> dict[str, Any]:
    sets = {"web": in_memory(), "books": in_memory(seed=3, batch_size=5)}
    return {"train_data": Interleaved(sets, seed=1), "steps_per_epoch": 5}


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
