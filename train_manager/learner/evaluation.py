"""The evaluation of a model by plain functions of predictions and truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn

from train_manager.learner.data import Datasets
from train_manager.extensions import EMA
from train_manager.learner.column_batches import ColumnBatches
from train_manager.learner.evaluation_result import EvaluationResult, Metric, measured
from train_manager.learner.objectives import Objectives, truth_of, value_of
from train_manager.learner.learner import LEARNERS
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError


class Evaluation(dict[str, EvaluationResult]):
    """The result of each part of the data: ``evaluation["test"].metrics``; printed as a table."""

    def __str__(self) -> str:
        rows = [
            f"{name}  " + "  ".join(f"{metric} {value:.4g}" for metric, value in result.metrics.items())
            for name, result in self.items()
        ]
        return "\n".join(rows)


def eval_model(dataloader: Datasets, model: nn.Module, metrics: Iterable[Metric]) -> Evaluation:
    """Evaluate a model on all parts of the data that are not trained on, by functions of predictions and truth.

    Each function is called once with all predictions of a part, and all of its truth, so that a metric is not a mean
    over batches. Extensions of the model's learner take part: with ``EMA`` the averaged weights are evaluated.

    Args:
        dataloader: the result of ``create_dataloader``.
        model: the model.
        metrics: functions ``metric(prediction, truth)``, which return a number.

    Raises:
        InputError: a metric does not return a number.
    """
    functions = list(metrics)
    learner = LEARNERS.get(model)
    with nullcontext(TrainManager(model=model)) if learner is None else learner.evaluating() as tm:
        found = Evaluation()
        for name, data in dataloader.eval_data.items():
            predicted = tm.predict(data)
            for label, prediction, truth in _pairs(model, predicted, data):
                metrics_of = measured(functions, prediction, truth)
                weights = "EMA" if any(isinstance(e, EMA) for e in tm.extensions.values()) else "trained"
                result = EvaluationResult(prediction, truth, data.all()["inputs"], metrics_of, functions, weights)
                found[f"{name} {label}".strip()] = result
    return found


def _pairs(model: nn.Module, predicted: Any, data: ColumnBatches) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each prediction that the data have the truth for, with the name of its objective if there are several."""
    targets = data.all().get("targets")
    terms = {name: term for name, term in Objectives(model.description["objective"]).terms.items() if term.takes_targets}
    for name, term in terms.items():
        truth = truth_of(term, targets)
        prediction = value_of(predicted, term.modules[0])
        if truth is not None and prediction is not None:
            yield (name if len(terms) > 1 else ""), prediction, truth
