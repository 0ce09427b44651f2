"""An objective: what is predicted, what is minimised and what is measured, in one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train_manager.core.decorators import modifies, overridable
from train_manager.core.errors import InputError
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.metrics.averages import WeightedMean


class Objective(Extension):
    """What a model is trained for: derive a class and write ``loss``, and ``predict`` and ``metrics`` where needed.

    >>> from torch.nn import functional as F
    >>> class Classify(Objective):
    ...     def loss(self, prediction, targets):
    ...         return F.cross_entropy(prediction, targets)
    ...     def metrics(self, prediction, targets):
    ...         return {"accuracy": (prediction.argmax(dim=1) == targets).float().mean()}

    A TrainManager takes it as ``loss=Classify()``. It is an extension, too: so its metrics are in each evaluation's
    results, with nothing else to add. ``loss`` and ``metrics`` are called by fixture names.

    *Runs at:* ``eval_step_epoch`` and ``eval_step_batch``.

    *Asks for:* what ``metrics`` names, and ``true_batch_size``.

    *Leaves behind:* the means of the metrics over the examples of a set, in ``eval_result``.
    """

    priority = -10

    def __init__(self) -> None:
        self._means: dict[str, WeightedMean] = {}

    # ---- to be overridden --------------------------------------------------------------------------------------------

    def predict(self, model: nn.Module, inputs: Any) -> Any:
        """The prediction, in training and evaluation. Here: what the model makes of the inputs."""
        return model(inputs)

    @overridable
    def loss(self, prediction: Any, targets: Any) -> Tensor:
        """The loss of a prediction, a scalar. To be written; may name other fixtures."""
        raise InputError(
            f"{type(self).__name__} has no loss",
            name="loss",
            cure="write it: def loss(self, prediction, targets): return F.cross_entropy(prediction, targets)",
        )

    @overridable
    def metrics(self) -> Mapping[str, Tensor | float]:
        """What else is measured of a batch in evaluation, by name: scalars, means over its examples. Here: nothing."""
        return {}

    # ---- metrics in evaluation ---------------------------------------------------------------------------------------

    def pre_eval_step_epoch(self) -> None:
        self._means = {}

    def post_eval_step_batch(self, train_manager: Extensible, true_batch_size: int) -> None:
        for name, value in train_manager.call_by_name(self.metrics).items():
            self._means.setdefault(name, WeightedMean()).append(_scalar(name, value), weight=true_batch_size)

    @modifies("eval_result")
    def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
        means, self._means = self._means, {}
        return {**eval_result, **{name: mean.value() for name, mean in means.items()}}


def _scalar(name: str, value: Any) -> Tensor:
    if isinstance(value, int | float):
        return torch.tensor(float(value))
    if not isinstance(value, Tensor) or value.dim():
        found = f"the shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"the type {type(value).__name__}"
        raise InputError(
            f"metric {name!r} has {found}, and is to be one number",
            name=name,
            asked_by="Objective.metrics",
            cure="reduce it to the mean over the batch: value.mean()",
        )
    return value
