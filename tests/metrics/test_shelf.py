"""Accuracy, F1 and confusion matrices of models of several kinds, against scikit-learn; and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.host_reads import HostReads
from train_manager import Extension, InMemory, InputError, TrainManager
from train_manager.extensions import ConfusionMatrix, HardExamples, Metrics, PredictionGallery
from train_manager.telling.findings import Finding
from train_manager.testing import tiny_manager

SAYS_PROBABILITY = (
    "each prediction is a number between 0 and 1, and was compared with 0: every example is of class 1 "
    "(give loss=nn.BCELoss() itself if these are probabilities, else let the model return logits)"
)


def points(n: int, seed: int) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))


def half(inputs: Tensor) -> Tensor:
    return (inputs[:, 0] > 0.3).long()


def quarter(inputs: Tensor) -> Tensor:
    return 2 * (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()


class Kind(NamedTuple):
    """A kind of model: its last layers, its loss, its targets, and the class that a prediction says."""

    outputs: int
    last: nn.Module
    loss: Callable[..., Tensor]
    targets: Callable[[Tensor], Tensor]
    said: Callable[[Tensor], Tensor]
    true: Callable[[Tensor], Tensor] = half


def column(inputs: Tensor) -> Tensor:
    return half(inputs).float().unsqueeze(1)


def flat_bce(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(prediction.squeeze(1), targets.float())


def one_hot(inputs: Tensor) -> Tensor:
    return F.one_hot(quarter(inputs), 4).float()


KINDS = {
    "a logit": Kind(1, nn.Identity(), nn.BCEWithLogitsLoss(), column, lambda p: p > 0),
    "a logit of integer targets": Kind(1, nn.Identity(), flat_bce, half, lambda p: p > 0),
    "a probability": Kind(1, nn.Sigmoid(), nn.BCELoss(), column, lambda p: p > 0.5),
    "a probability without a column": Kind(
        1,
        nn.Sequential(nn.Sigmoid(), nn.Flatten(0)),
        partial(F.binary_cross_entropy, reduction="mean"),
        lambda inputs: half(inputs).float(),
        lambda p: p > 0.5,
    ),
    "a margin, with targets of -1 and 1": Kind(
        1, nn.Identity(), F.soft_margin_loss, lambda inputs: 2 * column(inputs) - 1, lambda p: p > 0
    ),
    "two classes": Kind(2, nn.Identity(), F.cross_entropy, half, lambda p: p.argmax(1)),
    "logarithms of probabilities": Kind(
        4, nn.LogSoftmax(1), nn.NLLLoss(), quarter, lambda p: p.argmax(1), true=quarter
    ),
    "targets that are probabilities": Kind(
        4, nn.Identity(), F.cross_entropy, one_hot, lambda p: p.argmax(1), true=quarter
    ),
}


def manager(kind: Kind, *extensions: Extension, targets: Any = None, **options: Any) -> TrainManager:
    """A training of 200 points in batches of 16, with an evaluation of 150 others."""
    torch.manual_seed(0)
    x, y = points(200, 1), points(150, 2)
    make = targets or kind.targets
    given: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, kind.outputs), kind.last),
        "loss": kind.loss,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.02),
        "train_data": InMemory(x, make(x), batch_size=16),
        "eval_data": {"valid": InMemory(y, make(y), batch_size=16)},
        "epochs": 3,
        **options,
    }
    return TrainManager(extensions=extensions, **given)


class Said(Extension):
    """The classes of the examples of the last epoch, as the model has said them in their steps."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.said, self.true = kind, list[int](), list[int]()

    def pre_train_step_epoch(self) -> None:
        self.said, self.true = [], []

    def post_train_step_batch(self, inputs: Tensor, prediction: Tensor) -> None:
        self.said += self.kind.said(prediction).long().flatten().tolist()
        self.true += self.kind.true(inputs).tolist()


def f1(true: Any, said: Any) -> float:
    return float(f1_score(true, said, average="macro" if max(true) > 1 else "binary"))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_evaluation_has_the_numbers_of_scikit_learn(kind: Kind) -> None:
    tm = manager(kind, Metrics("accuracy", "f1"), confusion := ConfusionMatrix(), gallery := PredictionGallery())
    found = tm.train().metrics["valid"]
    inputs = points(150, 2)
    true, said = kind.true(inputs).tolist(), kind.said(tm.model(inputs)).long().flatten().tolist()

    assert found["accuracy"] == pytest.approx(accuracy_score(true, said))
    assert found["f1"] == pytest.approx(f1(true, said))
    assert confusion.matrices["valid"] == confusion_matrix(true, said).tolist()
    shown = gallery.examples["valid"]
    assert [said[place] for place in shown["place"].tolist()] == shown["said"].tolist()
    assert 0.9 < accuracy_score(true, said) < 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_epoch_of_the_training_has_the_numbers_of_scikit_learn(kind: Kind) -> None:
    tm = manager(kind, Metrics("accuracy", "f1"), seen := Said(kind))
    tm.train()

    assert tm.history.epochs[-1]["accuracy"] == pytest.approx(accuracy_score(seen.true, seen.said))
    assert tm.history.epochs[-1]["f1"] == pytest.approx(f1(seen.true, seen.said))


@pytest.mark.parametrize("name", ["a logit", "a probability"])
def test_hard_examples_are_forgotten_on_the_side_of_the_boundary_that_the_loss_means(name: str) -> None:
    tm = manager(KINDS[name], hard := HardExamples(), seen := Said(KINDS[name]), epochs=1)
    tm.train()

    learned = {one.number: one.learned for one in hard.hardest(200)}
    assert [learned[number] for number in range(200)] == [a == b for a, b in zip(seen.said, seen.true, strict=True)]


def test_the_probability_of_a_class_is_the_number_itself_or_the_rest() -> None:
    tm = tiny_manager(gallery := PredictionGallery(others=2), model=nn.Identity(), loss=nn.BCELoss(), optimizer=None)
    tm.eval([(torch.tensor([[0.3], [0.9]]), torch.ones(2, 1))])

    shown = gallery.examples["eval"]
    assert dict(zip(shown["place"].tolist(), shown["sure"].tolist(), strict=True)) == pytest.approx({0: 0.7, 1: 0.9})


# ---- numbers that no loss explains ---------------------------------------------------------------------------------


def own_bce(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy(prediction, targets)


def told(tm: TrainManager, **options: Any) -> list[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tm.train(**options)
    return [one for one in tm.findings if one.check == "classes"]


@pytest.mark.parametrize(
    "extension", [lambda: Metrics("accuracy", "f1"), ConfusionMatrix, PredictionGallery], ids=["metrics", "m", "g"]
)
def test_numbers_that_look_like_probabilities_are_told_once(extension: Callable[[], Extension]) -> None:
    tm = manager(KINDS["a probability"], extension(), loss=own_bce)
    found = told(tm)

    assert [(one.level, one.in_a_line) for one in found] == [("warning", SAYS_PROBABILITY)]
    assert found[0].numbers == {"examples": 150}


def test_the_evaluation_at_the_start_tells_nothing() -> None:
    tm = manager(KINDS["a probability"], Metrics("accuracy"), loss=own_bce, eval_at="start")

    assert told(tm) == []
    assert len(tm.history.evaluations) == 1


@pytest.mark.parametrize("name", ["a logit", "a probability", "two classes", "a margin, with targets of -1 and 1"])
def test_numbers_that_the_loss_explains_or_that_leave_the_range_are_not_told(name: str) -> None:
    assert told(manager(KINDS[name], Metrics("accuracy"))) == []


def test_less_than_20_numbers_are_not_told() -> None:
    few = InMemory(points(19, 3), column(points(19, 3)), batch_size=16)

    assert told(manager(KINDS["a probability"], Metrics("accuracy"), loss=own_bce, eval_data={"valid": few})) == []


def test_nothing_is_read_in_a_batch_of_numbers_that_no_loss_explains() -> None:
    tm = manager(KINDS["a probability"], Metrics("accuracy"), loss=own_bce)
    batch = points(16, 1), half(points(16, 1)).unsqueeze(1).float()
    counts = []
    for batches in ([batch], [batch] * 5):
        with HostReads() as reads:
            tm.eval(batches)
        counts.append(reads.count)

    assert counts[0] == counts[1]


# ---- targets that are not classes ----------------------------------------------------------------------------------


def labels(inputs: Tensor) -> Tensor:
    return torch.cat([inputs > 0, inputs > 0.5, inputs[:, :1] > 1], 1).float()


CLASSES: list[Any] = [
    pytest.param(lambda: Metrics("accuracy"), "Metrics('accuracy')", id="accuracy"),
    pytest.param(lambda: Metrics("f1"), "Metrics('f1')", id="f1"),
    pytest.param(ConfusionMatrix, "ConfusionMatrix", id="matrix"),
    pytest.param(PredictionGallery, "PredictionGallery", id="gallery"),
]


def refusal(kind: Kind, extension: Extension, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        manager(kind, extension, **options).train()
    return str(error.value)


@pytest.mark.parametrize(("extension", "asked_by"), CLASSES)
def test_several_labels_of_an_example_are_refused(extension: Any, asked_by: str) -> None:
    kind = Kind(5, nn.Identity(), nn.BCEWithLogitsLoss(), labels, lambda p: p > 0)

    assert refusal(kind, extension()) == (
        f"{asked_by} needs one class for each example, but each has 5 labels of its own, 0 or 1\n"
        "  take Metrics(accuracy=torchmetrics.classification.MultilabelAccuracy(num_labels=5))"
    )


def test_torchmetrics_measures_several_labels_as_the_refusal_says() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    kind = Kind(5, nn.Identity(), nn.BCEWithLogitsLoss(), labels, lambda p: p > 0)
    metric = torchmetrics.classification.MultilabelAccuracy(num_labels=5)
    tm = manager(kind, Metrics(accuracy=metric))
    found = tm.train().metrics["valid"]["accuracy"]
    inputs = points(150, 2)

    each = [accuracy_score(labels(inputs)[:, at], tm.model(inputs)[:, at] > 0) for at in range(5)]
    assert found == pytest.approx(sum(each) / 5)


@pytest.mark.parametrize(("extension", "asked_by"), CLASSES)
def test_the_accuracy_of_a_regression_is_refused(extension: Any, asked_by: str) -> None:
    kind = Kind(1, nn.Identity(), F.mse_loss, lambda inputs: inputs[:, :1] * 0 + 2.5, lambda p: p > 0)

    assert refusal(kind, extension()) == (
        f"{asked_by} needs classes, but the targets are numbers of a regression: one is 2.5\n"
        "  take the error in its place: Metrics(error=lambda prediction, targets: (prediction - targets).abs())"
    )


def test_integer_targets_of_minus_100_in_one_column_do_not_count() -> None:
    metrics, confusion = Metrics("accuracy", "f1"), ConfusionMatrix()
    tm = tiny_manager(
        metrics, confusion, model=nn.Identity(), loss=lambda prediction, targets: prediction.mean(), optimizer=None
    )
    prediction, targets = torch.tensor([[2.0], [2.0], [-2.0], [-2.0]]), torch.tensor([1, -100, -100, 1])
    found = tm.eval([(prediction, targets)])["eval"]

    assert found["accuracy"] == 0.5
    assert found["f1"] == pytest.approx(2 / 3)
    assert confusion.matrices["eval"] == [[0, 0], [1, 1]]


def test_float_targets_that_are_pixels_of_classes_are_not_labels() -> None:
    tm = tiny_manager(
        Metrics("accuracy"), model=nn.Identity(), loss=lambda prediction, targets: prediction.mean(), optimizer=None
    )
    pixels = torch.tensor([[[0.0, 1.0], [1.0, 1.0]]])

    assert tm.eval([(torch.stack([1 - pixels, pixels], 1), pixels)])["eval"]["accuracy"] == 1


def test_targets_are_looked_at_in_the_first_batch_of_a_set_only() -> None:
    tm = manager(KINDS["targets that are probabilities"], Metrics("accuracy"), ConfusionMatrix())
    batch = points(16, 1), one_hot(points(16, 1))
    counts = []
    for batches in ([batch], [batch] * 5):
        with HostReads() as reads:
            tm.eval(batches)
        counts.append(reads.count)

    assert counts[0] == counts[1]
