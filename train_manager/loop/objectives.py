"""The objective of a training in one object: how to predict, what to minimise and what to measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train_manager.core.declarations import modifies, overridable
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.loop.model_calls import ModelCall
from train_manager.metrics.averages import WeightedMean, as_float
from train_manager.telling.errors import InputError


class Objective(Extension):
    """Base class of objectives: a subclass writes ``loss``, and ``predict`` and ``metrics`` if it needs them.

    >>> from torch.nn import functional as F
    >>> class Classify(Objective):
    ...     def loss(self, prediction, targets):
    ...         return F.cross_entropy(prediction, targets)
    ...     def metrics(self, prediction, targets):
    ...         return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}

    A TrainManager takes it as ``loss=Classify()``. An objective is also an extension, so its metrics are in the results
    of each evaluation and nothing else needs to be added. ``loss`` and ``metrics`` are called by fixture names.

    *Runs at:* ``eval_step_epoch`` and ``eval_step_batch``.

    *Asks for:* what ``metrics`` names, and ``true_batch_size``.

    *Leaves behind:* the means of the metrics over the examples of a set, in ``eval_result``.
    """

    priority = -10  # before the other hooks of eval_result, which then find the metrics in it

    def __init__(self) -> None:
        self._means: dict[str, WeightedMean] = {}  # of the evaluation set that is open

    # ---- to be overridden --------------------------------------------------------------------------------------------

    def predict(self, model: nn.Module, inputs: Any) -> Any:
        """Return the prediction, in training and evaluation. Here: the model's, of the inputs."""
        return ModelCall(model)(model, inputs)

    @overridable
    def loss(self, prediction: Any, targets: Any) -> Tensor:
        """Return the loss of a prediction, a scalar. Each objective writes it, and may name other fixtures."""
        raise InputError(
            f"{type(self).__name__} has no loss",
            name="loss",
            cure="write it: def loss(self, prediction, targets): return F.cross_entropy(prediction, targets)",
        )

    @overridable
    def metrics(self) -> Mapping[str, Tensor | float]:
        """Return scalars by name that evaluation measures of a batch, as means over its examples. Here: none."""
        return {}

    @property
    def predicts_as_usual(self) -> bool:
        """Whether ``predict`` is not overridden, so that the loop calls the model itself."""
        return getattr(self.predict, "__func__", None) is Objective.predict

    # ---- metrics in evaluation ---------------------------------------------------------------------------------------

    def pre_eval_step_epoch(self) -> None:
        self._means = {}  # an evaluation that fails half-way leaves the means of its set behind

    def post_eval_step_batch(self, train_manager: Extensible, true_batch_size: int) -> None:
        for name, value in train_manager.call_by_name(self.metrics).items():
            self._means.setdefault(name, WeightedMean()).append(_scalar(name, value), weight=true_batch_size)

    @modifies("eval_result")
    def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
        means, self._means = self._means, {}
        return {**eval_result, **{name: mean.value() for name, mean in means.items()}}


def _scalar(name: str, value: Any) -> Tensor:
    if isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float64)  # a float of Python has 64 bits
    if not isinstance(value, Tensor) or value.dim():
        found = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"is a {type(value).__name__}"
        raise InputError(
            f"metric {name!r} must be a scalar, but {found}",
            name=name,
            asked_by="Objective.metrics",
            cure="reduce it to the mean over the batch: value.mean()",
        )
    return as_float(value)
