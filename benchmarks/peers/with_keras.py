"""Keras on torch: callbacks get the number of the batch and a dict, which holds the loss as a float."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import keras
import torch
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from torch import nn

from benchmarks.mlp import LEARNING_RATE, Batch, Clocked
from benchmarks.subscribers import Stage, subscribers

BEFORE = "on_train_batch_begin(self, batch, logs=None)"
AFTER = "on_train_batch_end(self, batch, logs=None)"


class Batches(DataAdapter):
    """The batches as they are, without the DataLoader that Keras would put around them."""

    def __init__(self, batches: Clocked) -> None:
        self.batches = batches

    def get_torch_dataloader(self) -> Iterator[Batch]:
        return iter(self.batches)

    @property
    def num_batches(self) -> int:
        return len(self.batches)

    @property
    def batch_size(self) -> int:
        return 32

    @property
    def has_partial_batch(self) -> bool:
        return False

    @property
    def partial_batch_size(self) -> None:
        return None


def stage(count: int) -> Stage:
    callbacks = subscribers(count, before=BEFORE, after=AFTER, base=keras.callbacks.Callback)
    hooks = keras.callbacks.CallbackList(callbacks)
    hooks._async_train = False  # where nobody asks for the end of a batch, it would hand that to a thread: dearer
    logs = {"loss": 1.0}

    def run(times: int) -> None:
        for _ in repeat(None, times):
            hooks.on_train_batch_begin(0, logs)
            hooks.on_train_batch_end(0, logs)

    return Stage(run, callbacks)


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    callbacks = subscribers(count, after=AFTER, base=keras.callbacks.Callback)
    twin = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    twin.build((None, 32))
    twin.set_weights([parameter.detach().numpy().T for parameter in model.parameters()])  # (inputs, outputs) there
    twin.compile(
        optimizer=keras.optimizers.SGD(LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    twin.fit(Batches(batches), verbose=0, callbacks=callbacks)
    with torch.no_grad():
        for parameter, weights in zip(model.parameters(), twin.get_weights(), strict=True):
            parameter.copy_(torch.from_numpy(weights.T))
    return callbacks
