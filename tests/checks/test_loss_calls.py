from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from train_manager.checks.loss_calls import LabelsOutOfRange, LossCall, LossCalls

OUTPUT, LABELS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])


def test_the_calls_of_a_module_and_of_a_function_are_noted() -> None:
    with LossCalls() as calls:
        nn.CrossEntropyLoss(label_smoothing=0.1)(OUTPUT, LABELS)
        F.mse_loss(input=OUTPUT.sum(), target=OUTPUT.mean())

    assert [call.name for call in calls.noted] == ["cross_entropy", "mse_loss"]
    assert calls.noted[0].options["label_smoothing"] == 0.1


def test_the_function_that_has_made_the_output_is_named_past_its_views() -> None:
    with LossCalls() as calls:
        F.nll_loss(OUTPUT.requires_grad_().log_softmax(1).reshape(2, 2, 3).view(4, 3), LABELS)

    assert calls.noted[0].made_by == "LogSoftmax"


def test_a_call_after_a_backward_pass_is_not_of_the_first_loss() -> None:
    with LossCalls() as calls:
        for _ in range(2):
            F.cross_entropy(OUTPUT.requires_grad_(), LABELS).backward()

    assert [call.is_first for call in calls.noted] == [True, False]


@pytest.mark.parametrize("labels", [LABELS + 1, LABELS - 1], ids=["from 1", "from -1"])
def test_labels_that_are_no_class_are_refused_before_the_loss(labels: torch.Tensor) -> None:
    low = int(labels.min())
    with LossCalls(), pytest.raises(LabelsOutOfRange) as caught:
        F.cross_entropy(OUTPUT, labels)
    assert str(caught.value) == (
        f"the labels go from {low} to {low + 2}, but the outputs have 3 classes: 0 to 2\n"
        "  number the classes from 0, or give the model more outputs"
    )


def test_a_label_that_is_to_be_ignored_is_none_of_these() -> None:
    with LossCalls():
        F.cross_entropy(OUTPUT, LABELS.clone().fill_(255), ignore_index=255)
        nn.CrossEntropyLoss()(OUTPUT, torch.full((4,), -100))


def test_a_loss_that_is_written_out_is_known_by_its_value() -> None:
    call = LossCall.usual(OUTPUT, OUTPUT + 1, (OUTPUT - (OUTPUT + 1)).square().mean())

    assert call is not None
    assert call.name == "mse_loss"
    assert LossCall.usual(OUTPUT, OUTPUT + 1, torch.tensor(5.0)) is None
