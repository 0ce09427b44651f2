"""Counts of the classes that a model takes for each other; they stay on their device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import on_host
from train_manager.telling.errors import InputError


class Classified(NamedTuple):
    """The predicted and the true classes of examples, in one dimension."""

    said: Tensor  # the number of the class that the model says
    true: Tensor  # the number of the true class; below 0 if the example does not count, as the -100 of cross_entropy
    sure: Tensor  # the probability that the model gives to the class that it says
    classes: int  # the number of classes


@torch.no_grad()
def classify(prediction: Any, targets: Any, asked_by: str) -> Classified:
    """Return the classes that a prediction says: its largest number, or class 1 if a single number is above 0.

    >>> classify(torch.tensor([[0., 9.], [9., 0.]]), torch.tensor([1, 1]), "ConfusionMatrix")[:2]
    (tensor([1, 0]), tensor([1, 1]))

    Raises:
        InputError: the shapes are not those of a classification.
    """
    if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor)):
        raise _unlike(prediction, targets, asked_by)
    scores, true = prediction.detach().float(), targets.detach()
    # A single logit for each example may come with a dimension of its own, or without.
    if scores.dim() == true.dim() + 1 and scores.shape[1] == 1:
        scores = scores.squeeze(1)
    if scores.shape == true.shape and (scores.dim() == 1 or scores.shape[1] == 1):  # a logit of class 1: class 0 has 0
        scores, true = torch.stack([torch.zeros_like(scores), scores], 1), (true > 0.5).long()
    elif scores.shape == true.shape and true.is_floating_point():  # a probability for each class
        true = true.argmax(1)
    if scores.dim() != true.dim() + 1 or scores.shape[2:] != true.shape[1:] or len(scores) != len(true):
        raise _unlike(prediction, targets, asked_by)
    sure, said = scores.softmax(1).max(1)
    true = true.long().reshape(-1)
    # Other class numbers than those of the prediction do not count.
    true = torch.where((true >= 0) & (true < scores.shape[1]), true, -1)
    return Classified(said.reshape(-1), true, sure.reshape(-1), scores.shape[1])


def _unlike(prediction: Any, targets: Any, asked_by: str) -> InputError:
    given = (prediction, targets)
    shapes = [f"of shape {tuple(one.shape)}" if isinstance(one, Tensor) else f"a {type(one).__name__}" for one in given]
    what = f"{asked_by} needs numbers for each class and targets, but prediction is {shapes[0]}, targets {shapes[1]}"
    cure = f"leave {asked_by} out, or let the model return (examples, classes) for targets of (examples,)"
    return InputError(what, name="prediction", asked_by=asked_by, cure=cure)


@final
class ConfusionCounts:
    """The counts of predicted classes for each true class: row by true class, column by predicted class.

    >>> counts = ConfusionCounts()
    >>> counts.append(classify(torch.eye(3)[[0, 1, 1]], torch.tensor([0, 1, 2]), "ConfusionMatrix"))
    >>> counts.matrix()
    tensor([[1, 0, 0],
            [0, 1, 0],
            [0, 1, 0]])
    """

    def __init__(self) -> None:
        self._classes = 0
        self._counts: Tensor | None = None  # the matrix in one row, and the number of examples that do not count

    def append(self, found: Classified) -> None:
        """Count examples, without reading them on the host."""
        if self._counts is None or self._classes != found.classes:
            self._classes = found.classes
            self._counts = torch.zeros(found.classes**2 + 1, dtype=torch.long, device=found.said.device)
        # Examples that do not count go into the last place: selecting them would wait for the device.
        place = torch.where(found.true < 0, found.classes**2, found.true * found.classes + found.said)
        self._counts.scatter_add_(0, place.to(self._counts.device), torch.ones_like(place))

    def matrix(self) -> Tensor | None:
        """Return the counts, on their device; None if there are none."""
        return None if self._counts is None else self._counts[:-1].reshape(self._classes, self._classes)

    def totals(self) -> tuple[int, Tensor | None]:
        """Return the number of classes and the counts, on the host."""
        return self._classes, on_host(self._counts)

    def join(self, totals: Sequence[tuple[int, Tensor | None]]) -> None:
        """Take the counts of all processes."""
        self._classes = max(classes for classes, _ in totals)  # 0 in a process without a batch
        found = [counts for classes, counts in totals if counts is not None and classes == self._classes]
        self._counts = torch.stack(found).sum(0) if found else None

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: an evaluation that ends early begins anew."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Do nothing: there is no state."""


@final
class TensorsByName(dict[str, Tensor]):
    """Tensors that a checkpoint holds."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all of them, on the host."""
        return {name: tensor.cpu() for name, tensor in self.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update(state)
