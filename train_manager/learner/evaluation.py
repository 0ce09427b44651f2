"""The evaluation of a model by plain functions of predictions and truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, final

import torch
from torch import Tensor

from train_manager.extensions import EMA
from train_manager.learner.datasets import Datasets
from train_manager.learner.model import FileModel
from train_manager.learner.objectives import truth_of, value_of
from train_manager.manager import TrainManager
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


class Evaluation(dict[str, EvaluationResult]):
    """The result of each part of the data: ``evaluation["test"].metrics``; printed as a table."""

    def __str__(self) -> str:
        rows = [
            f"{name}  " + "  ".join(f"{metric} {value:.4g}" for metric, value in result.metrics.items())
            for name, result in self.items()
        ]
        return "\n".join(rows)


def eval_model(dataloader: Datasets, model: FileModel, metrics: Iterable[Metric]) -> Evaluation:
    """Evaluate a model on all parts of the data that are not trained on, by functions of predictions and truth.

    Each function is called once with all predictions of a part, and all of its truth, so that a metric is not a mean
    over batches; of an objective between two modules with all results of both. Extensions of the model's learner take
    part: with ``EMA`` the averaged weights are evaluated.

    Args:
        dataloader: the result of ``create_dataloader``.
        model: the model.
        metrics: functions ``metric(prediction, truth)``, which return a number.

    Raises:
        InputError: a metric does not return a number.
    """
    functions = list(metrics)
    learner = model.learner
    with nullcontext(TrainManager(model=model)) if learner is None else learner.evaluating() as tm:
        found = Evaluation()
        for name, data in dataloader.eval_data.items():
            predicted, batch = _joined(tm.predict(data)), data.all()
            weights = _weights(tm, model)  # known only now: a run that opened for the prediction may load an average
            for objective, module, prediction, truth in _pairs(model, predicted, batch.get("targets")):
                numbers = measured(functions, prediction, truth)
                result = EvaluationResult(prediction, truth, batch["inputs"], numbers, functions, weights, module)
                found[f"{name} {objective}".strip()] = result
    return found


def _weights(tm: TrainManager, model: FileModel) -> Literal["EMA", "trained"]:
    """Return which weights have predicted: until the first step on the labels there is no average."""
    averages = [extension for extension in tm.extensions.values() if isinstance(extension, EMA)]
    return "EMA" if any(ema.has_average_of(model) for ema in averages) else "trained"


def _joined(predicted: Any) -> Any:
    """Return the results of all batches by module; a model with one output gives one tensor already.

    On the CPU, where the truth is.
    """
    if isinstance(predicted, Tensor):
        return predicted.cpu()
    return {name: torch.cat([batch[name] for batch in predicted]).cpu() for name in predicted[0]}


def _pairs(model: FileModel, predicted: Any, targets: Any) -> Iterator[tuple[str, str | None, Tensor, Tensor]]:
    """Yield name, module, prediction and truth of each objective that the data have both for.

    Between two modules the result of the second is the truth. The name is empty if there is one objective; the module
    is None if there is one output.
    """
    terms = {name: term for name, term in model.objectives.items() if term.takes_targets or len(term.modules) > 1}
    for name, term in terms.items():
        values = [value_of(predicted, module) for module in term.modules]
        truth = truth_of(term, targets) if len(values) == 1 else values[1]
        if values[0] is not None and truth is not None:
            module = term.modules[0] if model.has_several_outputs else None
            yield (name if len(terms) > 1 else ""), module, values[0], truth


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
