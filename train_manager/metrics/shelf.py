"""Metrics that are named by a string, and functions of a whole evaluation set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.data.shares import in_row_order
from train_manager.metrics.confusion import ConfusionCounts, classify
from train_manager.metrics.deferred import numbers, on_host
from train_manager.metrics.loss_terms import LOSSES, LossTerms
from train_manager.metrics.metric import add_shapes
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


@final
class Accuracy:
    """The share of the examples, or of their tokens or pixels, whose class is right; targets below 0 do not count."""

    def __init__(self) -> None:
        self._right: Tensor | int = 0  # a tensor on the device of the first batch, from then on
        self._counted: Tensor | int = 0

    def __repr__(self) -> str:
        return "accuracy"

    def update(self, prediction: Any, targets: Any) -> None:
        """Count a batch, on its device."""
        # Examples that do not count have the class -1, which no prediction says.
        found = classify(prediction, targets, "Metrics('accuracy')")
        self._right = self._right + (found.said == found.true).sum()
        self._counted = self._counted + (found.true >= 0).sum()

    def compute(self) -> Tensor:
        """Return the share; nan if no target counts."""
        return torch.as_tensor(self._right) / torch.as_tensor(self._counted)

    def totals(self) -> list[int]:
        """Return the counts."""
        return numbers([self._right, self._counted])

    def join(self, totals: Sequence[Sequence[int]]) -> None:
        """Take the counts of all processes."""
        self._right, self._counted = map(sum, zip(*totals, strict=True))

    def reset(self) -> None:
        """Forget all batches."""
        self._right = self._counted = 0


@final
class F1:
    """The F1 score over all examples, macro: the mean over the classes that were met; of two classes, that of class 1.

    The score of a class is 2 TP / (2 TP + FP + FN), where TP counts its examples that were found, FP other examples
    that were taken for it, and FN its examples that were missed (van Rijsbergen, Information Retrieval, 1979). A class
    is met if it is the true or the predicted class of an example.
    """

    def __init__(self) -> None:
        self._counts = ConfusionCounts()

    def __repr__(self) -> str:
        return "f1"

    def update(self, prediction: Any, targets: Any) -> None:
        """Count a batch, on its device."""
        self._counts.append(classify(prediction, targets, "Metrics('f1')"))

    def compute(self) -> Tensor:
        """Return the score; nan if no example counts."""
        matrix = self._counts.matrix()
        if matrix is None:
            return torch.tensor(torch.nan)
        met = matrix.sum(0) + matrix.sum(1)  # 2 TP + FP + FN
        scores = 2 * matrix.diagonal() / met  # nan for a class that was not met
        # Of two classes, 1 is the positive one, as in scikit-learn; of more, the macro average.
        return scores[1] if len(scores) == 2 else scores.nanmean()

    def totals(self) -> Any:
        """Return the counts."""
        return self._counts.totals()

    def join(self, totals: Sequence[Any]) -> None:
        """Take the counts of all processes."""
        self._counts.join(totals)

    def reset(self) -> None:
        """Forget all batches."""
        self._counts = ConfusionCounts()


SHELF: Final[dict[str, Callable[[], Any]]] = {"accuracy": Accuracy, "f1": F1, LOSSES: LossTerms}
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
        function: of prediction and targets, whose first axes are the examples; it returns a number. Both stay on their
            device until the evaluation ends.

    Raises:
        InputError: in an evaluation, if prediction and targets are not tensors.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        self.function = function
        self.__name__ = str(getattr(function, "__name__", "<lambda>"))  # Metrics names a metric by its __name__
        self._batches: list[tuple[Tensor, Tensor]] = []

    def __repr__(self) -> str:
        return f"whole({self.__name__})"

    def __call__(self, prediction: Tensor, targets: Tensor) -> Any:
        return self.function(prediction, targets)

    def update(self, prediction: Any, targets: Any) -> None:
        """Keep a batch, on its device."""
        if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor)):
            given = f"{type(prediction).__name__} and {type(targets).__name__}"
            what = f"whole({self.__name__}) needs tensors for prediction and targets, but was given {given}"
            raise InputError(what, name="prediction", cure="give a torchmetrics object, which takes what it can add up")
        self._batches.append((prediction.detach(), targets.detach()))

    @torch.no_grad()
    def compute(self) -> Any:
        """Return the value over all batches; nan if there are none."""
        if not self._batches:
            return torch.nan
        predictions, targets = (torch.cat(one) for one in zip(*self._batches, strict=True))
        try:
            return self.function(predictions, targets)
        except Exception as error:
            add_shapes(error, self.__name__, {"prediction": predictions, "targets": targets})
            raise

    def totals(self) -> list[tuple[Tensor, Tensor]]:
        """Return the batches, on the host."""
        return [(on_host(prediction), on_host(targets)) for prediction, targets in self._batches]

    def join(self, totals: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> None:
        """Take the batches of all processes; they stay on the host."""
        columns = ([[batch[column] for batch in batches] for batches in totals] for column in (0, 1))
        self._batches = list(zip(*map(in_row_order, columns), strict=True))

    def reset(self) -> None:
        """Forget all batches."""
        self._batches = []
