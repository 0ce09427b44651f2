"""Keras on torch, with the torch model as one layer."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from typing import Any

import keras
from torch import nn
from torch.nn import functional as F

from benchmarks.programs.problems import LR, Problem


def loss(targets: Any, prediction: Any) -> Any:
    """The loss, with the arguments in the order of Keras."""
    return F.cross_entropy(prediction, targets.long())


def compiled(problem: Problem, model: nn.Module, metrics: list[Any]) -> Any:
    """The model as Keras compiles it."""
    inputs = keras.Input(problem.train[0].shape[1:], dtype=str(problem.train[0].dtype).removeprefix("torch."))
    twin = keras.Sequential([inputs, keras.layers.TorchModuleWrapper(model)])
    optimizer = keras.optimizers.AdamW(LR, weight_decay=0.01, epsilon=1e-8)
    twin.compile(optimizer, loss=loss, metrics=metrics)
    return twin


def usual(problem: Problem, epochs: int) -> nn.Module:
    def accuracy(targets: Any, prediction: Any) -> Any:
        return (prediction.argmax(dim=1) == targets).float().mean()

    model = problem.new_model()
    twin = compiled(problem, model, [accuracy])
    twin.fit(problem.loader("train"), epochs=epochs, validation_data=problem.loader("valid"))
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    twin = compiled(problem, model, [])
    twin.fit(problem.loader("train"), epochs=epochs, validation_data=problem.loader("valid"), verbose=0)
    return model
