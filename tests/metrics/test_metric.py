"""One metric: a function or an object, for one batch or for many."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import InputError
from train_manager.metrics.metric import metric_of

VALUES = {"prediction": torch.eye(4), "targets": torch.tensor([0, 1, 0, 1])}


class Right:
    """Accuracy, as an object that accumulates; its ``device`` says where it is."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.reset()

    def reset(self) -> None:
        self.right = self.seen = 0

    def update(self, prediction: Tensor, targets: Tensor) -> None:
        self.right += int((prediction.argmax(dim=1) == targets).sum())
        self.seen += len(targets)

    def compute(self) -> Tensor:
        return torch.tensor(self.right / self.seen)

    def to(self, device: torch.device) -> None:
        self.device = device

    def __call__(self, prediction: Tensor, targets: Tensor) -> Tensor:
        raise NotImplementedError


class Both(Right):
    def compute(self) -> Any:
        return {"right": super().compute(), "wrong": 1 - super().compute()}


class Confusion(Right):
    def compute(self) -> Tensor:
        return torch.eye(2)


def values(*targets: int) -> dict[str, Tensor]:
    """The prediction is always class 0."""
    return {"prediction": torch.eye(2)[[0] * len(targets)], "targets": torch.tensor(targets), "loss": torch.tensor(2.0)}


def one(metric: Any) -> Any:
    return metric_of("metric", metric).of_batch(values(0, 1))["metric"]


@pytest.mark.parametrize(
    "returned",
    [0.5, torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([0.0, 1.0]), torch.tensor([True, False])],
    ids=["float", "scalar", "one row", "one per example", "one bool per example"],
)
def test_a_function_returns_a_number_or_one_for_each_example(returned: Any) -> None:
    value = one(lambda prediction, targets: returned)

    assert (value.item(), value.shape) == (0.5, torch.Size([]))


def test_a_function_with_a_parameter_called_prediction_is_called_by_names_in_any_order() -> None:
    assert one(lambda loss, prediction: loss * len(prediction)) == 4


def test_a_default_is_used_where_the_fixture_is_not_alive() -> None:
    def metric(prediction: Tensor, samples_seen: float = 0.25) -> float:
        return samples_seen

    assert one(metric) == 0.25


def test_a_module_is_read_by_its_forward() -> None:
    class Loss(nn.Module):
        def forward(self, loss: Tensor, prediction: Tensor) -> Tensor:
            return loss

    assert one(Loss()) == 2
    assert metric_of("l1", nn.CrossEntropyLoss()).of_batch(values(0, 1))["l1"].shape == ()


@pytest.mark.parametrize(
    "metric", [Right(), lambda p, t: (p.argmax(dim=1) == t).float().mean()], ids=["object", "function"]
)
def test_every_example_counts_once(metric: Any) -> None:
    made = metric_of("right", metric)
    made.append(values(0, 0, 0, 1), weight=4)
    made.append(values(1), weight=1)

    assert made.result() == {"right": pytest.approx(0.6)}


@pytest.mark.parametrize("metric", [Right(), lambda p, t: p.argmax(dim=1) == t], ids=["object", "function"])
def test_after_a_reset_nothing_is_left(metric: Any) -> None:
    made = metric_of("right", metric)
    made.append(values(1, 1), weight=2)
    made.reset()
    made.append(values(0), weight=1)

    assert made.result() == {"right": 1.0}


def test_an_object_keeps_nothing_of_a_single_batch() -> None:
    right = Right()
    made = metric_of("right", right)

    assert [made.of_batch(values(0, 1))["right"], made.of_batch(values(0, 0))["right"]] == [0.5, 1.0]
    assert right.seen == 0


def test_an_object_that_computes_several_values_gives_them_names() -> None:
    made = metric_of("class", Both())
    made.append(values(0, 0, 0, 1), weight=4)

    assert made.result() == {"class_right": 0.75, "class_wrong": 0.25}


def test_an_object_moves_to_the_device_of_the_prediction() -> None:
    class Counts(Right):
        def update(self, prediction: Tensor, targets: Tensor) -> None:
            pass

    counts = Counts()
    metric_of("counts", counts).append({"prediction": torch.zeros(2, device="meta"), "targets": None}, weight=2)

    assert counts.device == torch.device("meta")


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (
            Right,
            "metric 'right' must be a function of (prediction, targets) or a torchmetrics object, "
            "but is the class Right\n  give an instance: Right()",
        ),
        (3, "metric 'right' must be a function of (prediction, targets) or a torchmetrics object, but is 3"),
    ],
)
def test_what_is_no_metric_is_refused(metric: Any, text: str) -> None:
    with pytest.raises(InputError) as caught:
        metric_of("right", metric)

    assert str(caught.value) == text


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        one(lambda p, t: None)

    assert str(caught.value) == (
        "metric 'metric' must return a number for the batch, or a tensor with one for each example, "
        "but returned a NoneType"
    )


def test_an_object_that_computes_more_than_a_number_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        one(Confusion())

    assert str(caught.value) == (
        "metric 'metric' must compute one number, but computed a tensor of shape (2, 2)\n"
        '  average it, in torchmetrics with average="macro"'
    )


def test_metrics_of_torchmetrics_give_what_they_give_alone() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    given = torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro")
    alone = copy.deepcopy(given)
    made = metric_of("f1", given)
    for batch in (values(0, 1, 1), values(0)):
        made.append(batch, weight=len(batch["targets"]))
        alone.update(batch["prediction"], batch["targets"])

    assert made.result() == {"f1": alone.compute().item()}


def test_a_collection_of_torchmetrics_gives_all_its_values() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    both = torchmetrics.MetricCollection([torchmetrics.Accuracy("binary"), torchmetrics.Recall("binary")])
    made = metric_of("all", both)
    made.append({"prediction": torch.tensor([1, 0]), "targets": torch.tensor([1, 1])}, weight=2)

    assert made.result() == {"all_BinaryAccuracy": 0.5, "all_BinaryRecall": 0.5}


BIG = 2**24 + 1  # which 32 bits round to 2 ** 24


class Count(Right):
    def compute(self) -> Tensor:
        return torch.tensor(BIG)


@pytest.mark.parametrize(
    "original",
    [
        lambda prediction, targets: BIG,
        lambda prediction, targets: float(BIG),
        lambda prediction, targets: torch.tensor(BIG),
        lambda prediction, targets: torch.tensor([BIG - 1, BIG + 1]),
        Count(),
    ],
)
def test_a_number_keeps_all_of_its_digits(original: Any) -> None:
    metric = metric_of("count", original)
    for _ in range(2):
        metric.append(VALUES, weight=4)

    assert metric.result() == {"count": BIG}
    assert metric.of_batch(VALUES)["count"].item() == BIG


def test_a_metric_may_give_a_number_of_python_after_a_tensor() -> None:
    found = iter([torch.tensor(1.5), BIG])
    metric = metric_of("count", lambda prediction, targets: next(found))
    for weight in (2, 1):
        metric.append(VALUES, weight=weight)

    assert metric.result() == {"count": (3 + BIG) / 3}


def test_a_function_whose_second_parameter_has_a_default_that_is_no_fixture_is_called_by_position() -> None:
    def right(prediction: Tensor, target: Any = None) -> Any:
        return prediction.argmax(dim=1) == target

    assert one(right) == 0.5


def test_a_default_behind_the_pair_does_not_matter() -> None:
    assert one(lambda loss, prediction, scale=3: loss * scale) == 6
    assert one(lambda prediction, targets, scale=3: len(targets) * scale) == 6


class Sizes(Right):
    """How large predictions are; it needs no targets."""

    def update(self, prediction: Tensor) -> None:  # type: ignore[override]
        self.right += int(prediction.sum())
        self.seen += len(prediction)


class Losses(Right):
    def update(self, *, loss: Tensor) -> None:  # type: ignore[override]
        self.right, self.seen = int(loss), 1


class Labels(Right):
    def update(self, preds: Tensor, labels: Any = None) -> None:
        super().update(preds, labels)


def test_an_object_whose_update_cannot_take_a_pair_is_called_by_names_and_lives_without_targets() -> None:
    metric = metric_of("size", Sizes())

    assert [parameter.name for parameter in metric.parameters] == ["prediction"]
    assert metric.of_batch({"prediction": torch.eye(4)})["size"] == 1.0


def test_an_object_may_name_other_fixtures_than_the_prediction() -> None:
    assert one(Losses()) == 2.0


def test_an_object_whose_update_can_take_a_pair_is_given_one() -> None:
    assert one(Labels()) == 0.5
