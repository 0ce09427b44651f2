"""Predictions as classes: how often a model takes one for another, and its surest mistakes; all on their device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.metrics.deferred import on_host
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Finding

IGNORED: Final = -100  # the target of an example that does not count, in the losses of torch

PROBABILITIES: Final = 0.5
LOGITS: Final = 0.0
"""The number above which a single number for an example says class 1."""

ENOUGH: Final = 20  # numbers of a set: fewer lie between 0 and 1 by chance


class Classified(NamedTuple):
    """The predicted and the true classes of examples, in one dimension."""

    said: Tensor  # the number of the class that the model says
    true: Tensor  # the number of the true class; below 0 if the example does not count, as the -100 of cross_entropy
    sure: Tensor  # the probability that the model gives to the class that it says
    classes: int  # the number of classes
    numbers: Tensor | None = None  # what the model says, if that is a single number for each example


def boundary_of(loss: Any) -> float | None:
    """Return the number above which a single number says class 1; None if the loss does not say so.

    >>> boundary_of(torch.nn.BCELoss()), boundary_of(torch.nn.BCEWithLogitsLoss()), boundary_of(F.mse_loss)
    (0.5, 0.0, None)
    """
    while isinstance(loss, partial):
        loss = loss.func
    if loss is F.binary_cross_entropy or isinstance(loss, nn.BCELoss):
        return PROBABILITIES
    is_of_logits = loss is F.binary_cross_entropy_with_logits or isinstance(loss, nn.BCEWithLogitsLoss)
    return LOGITS if is_of_logits else None


@torch.no_grad()
def classify(prediction: Any, targets: Any, asked_by: str, boundary: float = LOGITS) -> Classified:
    """Return the classes that a prediction says: its largest number, or class 1 if a single number is large.

    >>> classify(torch.tensor([[0., 9.], [9., 0.]]), torch.tensor([1, 1]), "ConfusionMatrix")[:2]
    (tensor([1, 0]), tensor([1, 1]))

    Args:
        prediction: what the model has returned.
        targets: what it is compared with.
        asked_by: the name in errors.
        boundary: the number above which a single number says class 1: ``LOGITS`` or ``PROBABILITIES``.

    Raises:
        InputError: the shapes are not those of a classification.
    """
    if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor)):
        raise _unlike(prediction, targets, asked_by)
    scores, true, numbers = prediction.detach().float(), targets.detach(), None
    # A single number for each example, or pixel, may come with a dimension of its own, or without.
    is_single = scores.dim() == 1 or scores.shape[1:2] == (1,)
    if is_single and 1 < scores.dim() == true.dim() + 1:
        scores = scores.squeeze(1)
    if is_single and scores.shape == true.shape:
        numbers = scores
        of_class_0 = 1 - scores if boundary == PROBABILITIES else torch.zeros_like(scores)
        scores = torch.stack([of_class_0, scores], 1)
        true = torch.where(true == IGNORED, IGNORED, (true > 0.5).long())
    elif scores.shape == true.shape and true.is_floating_point():  # a probability for each class
        true = true.argmax(1)
    if scores.dim() != true.dim() + 1 or scores.shape[2:] != true.shape[1:] or len(scores) != len(true):
        raise _unlike(prediction, targets, asked_by)
    are_probabilities = numbers is not None and boundary == PROBABILITIES
    sure, said = (scores if are_probabilities else scores.softmax(1)).max(1)
    true = true.long().reshape(-1)
    # Other class numbers than those of the prediction do not count.
    true = torch.where((true >= 0) & (true < scores.shape[1]), true, -1)
    return Classified(said.reshape(-1), true, sure.reshape(-1), scores.shape[1], numbers)


def _unlike(prediction: Any, targets: Any, asked_by: str) -> InputError:
    given = (prediction, targets)
    shapes = [f"of shape {tuple(one.shape)}" if isinstance(one, Tensor) else f"a {type(one).__name__}" for one in given]
    what = f"{asked_by} needs numbers for each class and targets, but prediction is {shapes[0]}, targets {shapes[1]}"
    cure = f"leave {asked_by} out, or let the model return (examples, classes) for targets of (examples,)"
    return InputError(what, name="prediction", asked_by=asked_by, cure=cure)


def _refuse_targets(found: Classified, prediction: Tensor, targets: Tensor, asked_by: str) -> None:
    """Refuse targets that are not one class for each example; this waits for the device.

    Raises:
        InputError: they are several labels for each example, or numbers of a regression.
    """
    if not targets.is_floating_point():
        return
    if found.numbers is None:
        is_of_labels = prediction.shape == targets.shape and ((targets == 0) | (targets == 1)).all()
        if is_of_labels and ((targets.sum(1) - 1).abs() > 1e-2).any():
            labels = targets.shape[1]
            what = f"{asked_by} needs one class for each example, but each has {labels} labels of its own, 0 or 1"
            cure = f"take Metrics(accuracy=torchmetrics.classification.MultilabelAccuracy(num_labels={labels}))"
            raise InputError(what, name="targets", asked_by=asked_by, cure=cure)
        return
    # -1 is class 0 for losses of a margin, as soft_margin_loss.
    is_number = ((targets < 0) | (targets > 1)) & (targets != -1)
    if is_number.any():
        shown = f"{targets[is_number][0].item():g}"
        what = f"{asked_by} needs classes, but the targets are numbers of a regression: one is {shown}"
        cure = "take the error in its place: Metrics(error=lambda prediction, targets: (prediction - targets).abs())"
        raise InputError(what, name="targets", asked_by=asked_by, cure=cure)


@final
class ClassReader:
    """Reads the predictions of one set as classes, as the loss means them; its first batch shows what the targets are.

    >>> reader = ClassReader("ConfusionMatrix")
    >>> reader.read(torch.tensor([0.7, 0.2]), torch.tensor([1.0, 1.0]), nn.BCELoss()).said
    tensor([1, 0])

    Args:
        asked_by: the name in errors.
    """

    def __init__(self, asked_by: str) -> None:
        self._asked_by, self._has_read = asked_by, False
        # Of numbers that the loss does not explain: how many there were, and how many of them lie between 0 and 1.
        self._totals: tuple[int, Tensor | int] = (0, 0)

    def read(self, prediction: Any, targets: Any, loss: Any = None, *, in_training: bool = False) -> Classified:
        """Return the classes of a batch, without reading them on the host but for float targets of the first batch.

        Raises:
            InputError: prediction and targets are not those of a classification.
        """
        boundary = boundary_of(loss)
        found = classify(prediction, targets, self._asked_by, LOGITS if boundary is None else boundary)
        if not self._has_read:
            _refuse_targets(found, prediction, targets, self._asked_by)
            self._has_read = True
        if boundary is None and found.numbers is not None and not in_training:
            count, between = self._totals
            inside = ((found.numbers > 0) & (found.numbers < 1)).sum()
            self._totals = count + found.numbers.numel(), between + inside
        return found

    def totals(self) -> tuple[int, Tensor | int]:
        """Return the numbers that the loss does not explain: how many, and how many of them lie between 0 and 1."""
        return self._totals[0], on_host(self._totals[1])

    def join(self, totals: Sequence[tuple[int, Tensor | int]]) -> None:
        """Take the numbers of all processes."""
        counts, between = zip(*totals, strict=True)
        self._totals = sum(counts), sum(between)

    def tell(self, train_manager: Any) -> None:
        """Add a finding if all numbers look like probabilities, but were compared with 0; this waits for the device."""
        count, between = self._totals
        # Of 1,000 untrained models, 238 say numbers between 0 and 1 for all examples.
        if count < ENOUGH or train_manager is None or train_manager.step_num <= train_manager.first_step:
            return
        if int(between) == count:
            what = "each prediction is a number between 0 and 1, and was compared with 0: every example is of class 1"
            cure = "give loss=nn.BCELoss() itself if these are probabilities, else let the model return logits"
            train_manager.add_finding(
                Finding("classes", "warning", what, "", cure, {"examples": count}, code="probabilities-against-zero")
            )


# ---- counts ----------------------------------------------------------------------------------------------------------


def confusion_of(found: Classified) -> Tensor:
    """Return the matrix of true and predicted classes in one row, and then the number of examples that do not count."""
    # Examples that do not count go into the last place: selecting them would wait for the device.
    place = torch.where(found.true < 0, found.classes**2, found.true * found.classes + found.said)
    counts = torch.zeros(found.classes**2 + 1, dtype=torch.long, device=place.device)
    return counts.scatter_add_(0, place, torch.ones_like(place))


def add_counts(before: Tensor | None, more: Tensor) -> Tensor:
    """Return the sum of counts, on the device of the latter; of other classes than before, only the latter."""
    return more if before is None or before.shape != more.shape else before.to(more.device) + more


def sum_counts(counts: Sequence[Tensor | None]) -> Tensor | None:
    """Return the sum of the counts of several processes; None is of one without a batch."""
    return reduce(add_counts, (one for one in counts if one is not None), None)


def matrix_in(counts: Tensor) -> Tensor:
    """Return the matrix of true and predicted classes, of what ``confusion_of`` returns."""
    classes = math.isqrt(len(counts) - 1)
    return counts[:-1].reshape(classes, classes)


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
        self.reader = ClassReader("ConfusionMatrix")
        self._counts: Tensor | None = None  # the matrix in one row, and the number of examples that do not count

    def append(self, found: Classified) -> None:
        """Count examples, without reading them on the host."""
        self._counts = add_counts(self._counts, confusion_of(found))

    def matrix(self) -> Tensor | None:
        """Return the counts, on their device; None if there are none."""
        return None if self._counts is None else matrix_in(self._counts)

    def totals(self) -> tuple[Any, Tensor | None]:
        """Return what the reader has seen, and the counts, on the host."""
        return self.reader.totals(), on_host(self._counts)

    def join(self, totals: Sequence[tuple[Any, Tensor | None]]) -> None:
        """Take the counts of all processes."""
        readers, counts = zip(*totals, strict=True)
        self.reader.join(readers)
        self._counts = sum_counts(counts)


# ---- examples --------------------------------------------------------------------------------------------------------


@final
class Largest:
    """The examples with the largest keys.

    >>> largest = Largest(2)
    >>> for keys in ([1., 3.], [2., 0.]):
    ...     largest.append(torch.tensor(keys), {"value": torch.tensor(keys) * 10})
    >>> largest.columns["value"]
    tensor([30., 20.])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.columns: dict[str, Tensor] = {}  # of the examples so far, at most `most`; "key" is one of them

    def append(self, keys: Tensor, columns: Mapping[str, Tensor]) -> None:
        """Add examples: a key and one value of each column for each of them."""
        given = {"key": keys, **columns}
        # The best so far compete with the new batch, so that at most `most` examples and one batch are in memory.
        whole = {name: torch.cat([self.columns.get(name, value[:0]), value]) for name, value in given.items()}
        best = whole["key"].topk(min(self._most, len(whole["key"]))).indices
        self.columns = {name: value[best] for name, value in whole.items()}


@final
class Gallery:
    """The surest mistakes of an evaluation, and then random examples, the same ones in each evaluation.

    Args:
        mistakes: how many mistakes at most.
        others: how many random examples.
    """

    def __init__(self, mistakes: int, others: int) -> None:
        self.reader = ClassReader("PredictionGallery")
        self._mistakes, self._others = Largest(mistakes), Largest(others)
        self._count = 0  # examples so far, for their places
        self._random: torch.Generator | None = None  # a generator apart, so that the training draws the same

    @torch.no_grad()
    def append(self, inputs: Tensor, found: Classified) -> None:
        """Look at a batch, without reading it on the host."""
        if self._random is None:
            self._random = torch.Generator(found.said.device).manual_seed(0)
        places = torch.arange(len(inputs), device=inputs.device) + self._count
        self._count += len(inputs)
        classes = {"said": found.said, "true": found.true, "sure": found.sure}
        columns = {"inputs": inputs.detach(), "place": places, **classes}
        is_mistake = (found.said != found.true) & (found.true >= 0)
        # The key -1 stands for an example that is not a mistake: leaving it out here would wait for the device.
        self._mistakes.append(torch.where(is_mistake, found.sure, -1.0), columns)
        # The largest of random keys are a random sample.
        keys = torch.rand(len(inputs), generator=self._random, device=found.said.device)
        self._others.append(keys, columns)

    def examples(self) -> dict[str, Tensor]:
        """Return the mistakes, then random examples, on the host: this waits for the device."""
        parts = [self._mistakes.columns, self._others.columns]
        if not parts[0]:
            return {}
        whole = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
        is_shown = whole.pop("key") >= 0  # below 0: among the mistakes, but right
        return {name: value[is_shown] for name, value in whole.items()}


def require_one_for_each(inputs: Any, predictions: int, asked_by: str) -> None:
    """Refuse inputs that are not a tensor with one for each prediction.

    Raises:
        InputError: inputs are not such a tensor.
    """
    if not isinstance(inputs, Tensor) or len(inputs) != predictions:
        kind = f"of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"
        what = f"{asked_by} needs one input for each of {predictions} predictions, but inputs is {kind}"
        raise InputError(what, name="inputs", asked_by=asked_by, cure=f"leave {asked_by} out")
