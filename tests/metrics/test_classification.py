"""What a prediction says, and how often each class was taken for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.host_reads import HostReads
from train_manager import InputError
from train_manager.metrics.classification import ConfusionCounts, classify


def said_and_true(prediction: Any, targets: Any) -> tuple[list[int], list[int]]:
    found = classify(prediction, targets, "ConfusionMatrix")
    return found.said.tolist(), found.true.tolist()


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_a_single_number_is_a_logit(shape: tuple[int, ...]) -> None:
    logits = torch.tensor([-1.0, 2.0, 3.0]).reshape(shape)

    assert said_and_true(logits, torch.tensor([0, 1, 0])) == ([0, 1, 1], [0, 1, 0])
    assert said_and_true(logits, torch.tensor([0.0, 1.0, 0.0]).reshape(shape)) == ([0, 1, 1], [0, 1, 0])


def test_targets_may_be_a_probability_for_each_class() -> None:
    assert said_and_true(torch.eye(2), torch.tensor([[0.1, 0.9], [0.2, 0.8]])) == ([0, 1], [1, 1])


def test_each_pixel_of_a_segmentation_counts() -> None:
    prediction = torch.zeros(1, 2, 2, 2)
    prediction[:, 1, 0] = 1

    assert said_and_true(prediction, torch.tensor([[[1, 1], [1, 0]]])) == ([1, 1, 0, 0], [1, 1, 1, 0])


def test_each_pixel_may_have_a_single_number() -> None:
    prediction = torch.tensor([[[[-1.0, 2.0], [3.0, -4.0]]]])

    for targets in (torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), torch.tensor([[[[0.0, 1.0], [0.0, 0.0]]]])):
        assert said_and_true(prediction, targets) == ([0, 1, 1, 0], [0, 1, 0, 0])


def test_targets_that_are_no_class_are_left_out_of_the_counts() -> None:
    counts = ConfusionCounts()
    counts.append(classify(torch.eye(2)[[0, 1, 1]], torch.tensor([0, -100, 7]), "ConfusionMatrix"))

    matrix = counts.matrix()
    assert matrix is not None
    assert matrix.tolist() == [[1, 0], [0, 0]]


def test_nothing_is_read_on_the_host() -> None:
    counts = ConfusionCounts()
    with HostReads() as reads:
        counts.append(classify(torch.eye(2), torch.tensor([0, 1]), "ConfusionMatrix"))

    assert reads.count == 0


@pytest.mark.parametrize(
    ("prediction", "targets", "told"),
    [
        (torch.ones(3, 4), torch.ones(5).long(), "prediction is of shape (3, 4), targets of shape (5,)"),
        ({"logits": torch.ones(3)}, torch.ones(3), "prediction is a dict, targets of shape (3,)"),
        (torch.ones(3, 2, 2), torch.ones(3).long(), "prediction is of shape (3, 2, 2), targets of shape (3,)"),
    ],
)
def test_what_is_no_classification_is_refused(prediction: Any, targets: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        classify(prediction, targets, "ConfusionMatrix")
    assert str(error.value) == (
        f"ConfusionMatrix needs numbers for each class and targets, but {told}\n"
        "  leave ConfusionMatrix out, or let the model return (examples, classes) for targets of (examples,)"
    )
