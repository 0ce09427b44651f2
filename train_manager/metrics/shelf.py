"""Metrics that are named by a string, and functions of a whole evaluation set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, final

import torch
from torch import Tensor

from train_manager.metrics.confusion import ConfusionCounts, classified
from train_manager.telling.errors import InputError, did_you_mean, near


class Accumulating(Protocol):
    """A metric of many batches, as those of torchmetrics are."""

    def update(self, prediction: Any, targets: Any) -> None: ...
    def compute(self) -> Any: ...
    def reset(self) -> None: ...


def from_shelf(name: str) -> Accumulating:
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
    cure = did_you_mean(near(name, SHELF)) or f"there are {', '.join(map(repr, SHELF))}; or give a function"
    raise InputError(f"Metrics knows no metric by the name {name!r}", name=name, cure=cure)


@final
class Accuracy:
    """The share of the examples, or of their tokens or pixels, whose class is right; targets below 0 do not count."""

    def __init__(self) -> None:
        self._right: Tensor | int = 0
        self._counted: Tensor | int = 0

    def __repr__(self) -> str:
        return "accuracy"

    def update(self, prediction: Any, targets: Any) -> None:
        """Count a batch, on its device."""
        found = classified(prediction, targets, "Metrics('accuracy')")
        self._right = self._right + (found.said == found.true).sum()
        self._counted = self._counted + (found.true >= 0).sum()

    def compute(self) -> Tensor:
        """Return the share; nan if no target counts."""
        return torch.as_tensor(self._right) / torch.as_tensor(self._counted)

    def reset(self) -> None:
        """Forget all batches."""
        self._right = self._counted = 0


@final
class F1:
    """The F1 score over all examples: of class 1 if there are two, else the mean over the classes that were met.

    The score of a class is 2 TP / (2 TP + FP + FN), where TP are its examples that were found, FP others that were
    taken for it, and FN those that were missed (van Rijsbergen, Information Retrieval, 1979). A class is met if it is
    true of an example or was said of one.
    """

    def __init__(self) -> None:
        self._counts = ConfusionCounts()

    def __repr__(self) -> str:
        return "f1"

    def update(self, prediction: Any, targets: Any) -> None:
        """Count a batch, on its device."""
        self._counts.append(classified(prediction, targets, "Metrics('f1')"))

    def compute(self) -> Tensor:
        """Return the score; nan if no example counts."""
        matrix = self._counts.matrix()
        if matrix is None:
            return torch.tensor(torch.nan)
        met = matrix.sum(0) + matrix.sum(1)  # 2 TP + FP + FN
        scores = 2 * matrix.diagonal() / met  # nan for a class that was not met
        return scores[1] if len(scores) == 2 else scores.nanmean()

    def reset(self) -> None:
        """Forget all batches."""
        self._counts = ConfusionCounts()


SHELF: Final[dict[str, Callable[[], Accumulating]]] = {"accuracy": Accuracy, "f1": F1}


@final
class whole:  # noqa: N801  # is called as a function
    """Give a metric all predictions and targets of an evaluation set at once, not batch by batch.

    A score that is not a mean over examples, such as F1, AUROC or a correlation, is wrong as a mean over batches:

    >>> from train_manager.extensions import Metrics
    >>> from train_manager.testing import tiny_manager
    >>> def spread(prediction, targets):
    ...     return prediction.std()
    >>> result = tiny_manager(Metrics(spread=whole(spread))).train()

    In a training, where a prediction is soon of older weights, the function gets one batch at a time.

    Args:
        function: of prediction and targets, whose first axes are the examples; it returns a number. Both stay on their
            device until the evaluation ends.

    Raises:
        InputError: in an evaluation, if prediction and targets are not tensors.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        self.function = function
        self.__name__ = str(getattr(function, "__name__", "<lambda>"))
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
        return self.function(predictions, targets)

    def reset(self) -> None:
        """Forget all batches."""
        self._batches = []
