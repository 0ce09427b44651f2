"""Metrics that are named by a string, and functions of a whole evaluation set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.data.shares import in_row_order
from train_manager.metrics.classification import (
    Classified,
    ClassReader,
    add_counts,
    confusion_of,
    matrix_in,
    sum_counts,
)
from train_manager.metrics.deferred import on_host
from train_manager.metrics.loss_terms import LOSSES, LossTerms
from train_manager.metrics.metric import add_shapes, positional_pair
from train_manager.telling.errors import InputError, did_you_mean, near


def from_shelf(name: str) -> Any:
    """Return a new metric by its name.

    >>> accuracy = from_shelf("accuracy")
    >>> accuracy.update(torch.eye(3), torch.tensor([0, 1, 1]))
    >>> accuracy.compute()
    tensor(0.6667)

    Raises:
        InputError: no metric has this name.
    """
    if name in SHELF:
        return SHELF[name]()
    meant = SYNONYMS.get(name.lower())
    cure = did_you_mean([meant] if meant else near(name, SHELF))
    cure = cure or f"there are {', '.join(map(repr, SHELF))}; or give a function"
    raise InputError(f"Metrics knows no metric by the name {name!r}", name=name, cure=cure)


def count_right(found: Classified) -> Tensor:
    """Return how many classes are right, and how many examples count."""
    # Examples that do not count have the class -1, which no prediction says.
    return torch.stack([(found.said == found.true).sum(), (found.true >= 0).sum()])


def share_right(counts: Tensor) -> Tensor:
    """Return the share of the examples, or of their tokens or pixels, whose class is right; nan if none counts."""
    return counts[0] / counts[1]


def f1_of(counts: Tensor) -> Tensor:
    """Return the F1 score, macro: the mean over the classes that were met; of two classes, that of class 1.

    The score of a class is 2 TP / (2 TP + FP + FN), where TP counts its examples that were found, FP other examples
    that were taken for it, and FN its examples that were missed (van Rijsbergen, Information Retrieval, 1979). A class
    is met if it is the true or the predicted class of an example. It is nan if no example counts.

    Args:
        counts: what ``confusion_of`` returns.
    """
    matrix = matrix_in(counts)
    met = matrix.sum(0) + matrix.sum(1)  # 2 TP + FP + FN
    scores = 2 * matrix.diagonal() / met  # nan for a class that was not met
    # Of two classes, 1 is the positive one, as in scikit-learn; of more, the macro average.
    return scores[1] if len(scores) == 2 else scores.nanmean()


KINDS: Final[Mapping[str, tuple[Callable[[Classified], Tensor], Callable[[Tensor], Tensor]]]] = {
    "accuracy": (count_right, share_right),
    "f1": (confusion_of, f1_of),
}
"""Of each metric of classes: what it counts in a batch, and its score of the counts."""


@final
class ClassMetric:
    """A metric of classes: counts that add up over batches, epochs and processes, and their score.

    Args:
        kind: "accuracy" or "f1".
        name: the name of the metric; None if it is the kind.

    Attributes:
        counts: those of all batches since ``reset``.
        of_last: those of the last batch of ``of_batch``.
    """

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind, self.name = kind, name or kind
        self.original = self
        # The loss says what a single number for each example means.
        self.parameters = [*positional_pair(), Parameter("train_manager", Parameter.KEYWORD_ONLY, default=None)]
        self.counts: Tensor | None = None
        self.of_last = torch.zeros(0)
        self.reset()

    def __repr__(self) -> str:
        return self.kind

    def named(self, name: str) -> ClassMetric:
        """Return a new metric of the same kind."""
        return ClassMetric(self.kind, name)

    def score(self, counts: Tensor) -> Tensor:
        """Return the score of counts."""
        return KINDS[self.kind][1](counts)

    def of_batch(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        loss = getattr(values.get("train_manager"), "loss", None)
        found = self.reader.read(values["prediction"], values["targets"], loss, in_training=True)
        self.of_last = KINDS[self.kind][0](found)
        return {self.name: self.score(self.of_last)}

    def append(self, values: Mapping[str, Any], weight: float) -> None:
        self.update(values["prediction"], values["targets"], getattr(values.get("train_manager"), "loss", None))

    def update(self, prediction: Any, targets: Any, loss: Any = None) -> None:
        """Count a batch, on its device."""
        self.counts = add_counts(self.counts, KINDS[self.kind][0](self.reader.read(prediction, targets, loss)))

    def compute(self) -> Tensor:
        """Return the score of all batches; nan if no target counts."""
        return torch.tensor(torch.nan) if self.counts is None else self.score(self.counts)

    def totals(self) -> tuple[Any, Tensor | None]:
        return self.reader.totals(), on_host(self.counts)

    def join(self, totals: Sequence[tuple[Any, Tensor | None]]) -> None:
        readers, counts = zip(*totals, strict=True)
        self.reader.join(readers)
        self.counts = sum_counts(counts)

    def result(self) -> dict[str, float]:
        return {self.name: self.compute().item()}

    def reset(self) -> None:
        """Forget all batches, as a set begins."""
        self.reader = ClassReader(f"Metrics({self.kind!r})")
        self.counts = None


SHELF: Final[dict[str, Callable[[], Any]]] = {
    **{kind: partial(ClassMetric, kind) for kind in KINDS},
    LOSSES: LossTerms,
}
SYNONYMS: Final = {"acc": "accuracy", "f1_score": "f1", "f1_macro": "f1", "macro_f1": "f1"}


@final
class whole:  # noqa: N801  # users call it as a function
    """Give a metric all predictions and targets of an evaluation set at once, not batch by batch.

    A score that is not a mean over examples, such as F1, AUROC or a correlation, is wrong as a mean over batches:

    >>> from train_manager.extensions import Metrics
    >>> from train_manager.testing import tiny_manager
    >>> def spread(prediction, targets):
    ...     return prediction.std()
    >>> result = tiny_manager(Metrics(spread=whole(spread))).train()

    In a run, where a prediction is soon of older weights, the function gets one batch at a time.

    Where several processes train together, each one gets all rows of the set, in their order.

    Args:
        function: of prediction and targets, whose first axes are the examples, or lists of an entry for each; it
            returns a number. Both stay on their device until the evaluation ends.

    Raises:
        InputError: in an evaluation, if prediction and targets are not tensors or lists; with several processes, if
            they are lists.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        self.function = function
        self.__name__ = str(getattr(function, "__name__", "<lambda>"))  # Metrics names a metric by its __name__
        self._batches: list[tuple[Any, Any]] = []

    def __repr__(self) -> str:
        return f"whole({self.__name__})"

    def __call__(self, prediction: Tensor, targets: Tensor) -> Any:
        return self.function(prediction, targets)

    def update(self, prediction: Any, targets: Any) -> None:
        """Keep a batch, on its device."""
        if not (isinstance(prediction, Tensor | list) and isinstance(targets, Tensor | list)):
            given = f"{type(prediction).__name__} and {type(targets).__name__}"
            what = f"whole({self.__name__}) needs tensors or lists for prediction and targets, but was given {given}"
            raise InputError(what, name="prediction", cure="give a torchmetrics object, which takes what it can add up")
        self._batches.append((_kept(prediction), _kept(targets)))

    @torch.no_grad()
    def compute(self) -> Any:
        """Return the value over all batches; nan if there are none."""
        if not self._batches:
            return torch.nan
        predictions, targets = map(_joined, zip(*self._batches, strict=True))
        try:
            return self.function(predictions, targets)
        except Exception as error:
            add_shapes(error, self.__name__, {"prediction": predictions, "targets": targets})
            raise

    def totals(self) -> list[tuple[Tensor, Tensor]]:
        """Return the batches, on the host."""
        if any(isinstance(one, list) for batch in self._batches for one in batch):
            what = f"whole({self.__name__}) cannot join the lists of several processes"
            raise InputError(what, name="prediction", cure="give a torchmetrics object, which gathers those of all")
        return [(on_host(prediction), on_host(targets)) for prediction, targets in self._batches]

    def join(self, totals: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        """Take the batches of all processes; they stay on the host."""
        columns = ([[batch[column] for batch in batches] for batches in totals] for column in (0, 1))
        self._batches = list(zip(*map(in_row_order, columns), strict=True))

    def reset(self) -> None:
        """Forget all batches."""
        self._batches = []


def _kept(value: Any) -> Any:
    """Return what is kept of a batch: a tensor without its graph, a list as it is."""
    return value.detach() if isinstance(value, Tensor) else value


def _joined(batches: Sequence[Any]) -> Any:
    if all(isinstance(one, Tensor) for one in batches):
        return torch.cat(list(batches))
    return [entry for one in batches for entry in one]
