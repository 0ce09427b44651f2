"""The predictions of an evaluation, with what they were compared to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import torch
from torch import Tensor

from train_manager.telling.errors import InputError

Metric = Callable[[Tensor, Tensor], Any]
"""A function of predictions and truth that returns a number, or one for each example."""


@final
@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What an evaluation has found, with all that it takes to do it again for another form of the model.

    Attributes:
        predictions: a row for each example.
        truth: the targets of the same examples.
        inputs: of the same examples, as the model is called with: a tensor, or a dict of tensors.
        metrics: the numbers of the evaluation, by name.
        functions: what computed them from predictions and truth.
        weights: the weights that predicted: "EMA" for their moving average, or "trained".
        module: the name of the module whose output was predicted; None for the only output.
    """

    predictions: Tensor
    truth: Tensor
    inputs: Any
    metrics: Mapping[str, float]
    functions: Sequence[Metric] = field(default_factory=tuple)
    weights: Literal["EMA", "trained"] = "trained"
    module: str | None = None

    def predict(self, outputs: Any) -> Any:
        """Return the prediction that outputs of the model have."""
        return outputs if self.module is None else outputs[self.module]


def measured(functions: Sequence[Metric], predictions: Tensor, truth: Tensor) -> dict[str, float]:
    """Return the metrics by the names of the functions; a number for each example counts by its mean.

    Raises:
        InputError: a function returns neither a number nor numbers.
    """
    return {metric_name(function): _number(function, function(predictions, truth)) for function in functions}


def metric_name(function: Metric) -> str:
    """Return the name of a metric: that of its function, or of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


def _number(function: Metric, value: Any) -> float:
    try:
        return float(torch.as_tensor(value).double().mean())
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{metric_name(function)} must return a number, but returned a {type(value).__name__}"
        raise InputError(what, name=metric_name(function), cure="return a float or a tensor") from error
