from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.checks.first_loss import LabelsOutOfRange, LossCall, LossCalls, check_initial_loss
from train_manager.telling.findings import Findings

# ---- the calls of losses ---------------------------------------------------------------------------------------------


OUTPUT, FOUR_LABELS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])


def test_the_calls_of_a_module_and_of_a_function_are_noted() -> None:
    with LossCalls() as calls:
        nn.CrossEntropyLoss(label_smoothing=0.1)(OUTPUT, FOUR_LABELS)
        F.mse_loss(input=OUTPUT.sum(), target=OUTPUT.mean())

    assert [call.name for call in calls.noted] == ["cross_entropy", "mse_loss"]
    assert calls.noted[0].options["label_smoothing"] == 0.1


def test_the_function_that_has_made_the_output_is_named_past_its_views() -> None:
    with LossCalls() as calls:
        F.nll_loss(OUTPUT.requires_grad_().log_softmax(1).reshape(2, 2, 3).view(4, 3), FOUR_LABELS)

    assert calls.noted[0].made_by == "LogSoftmax"


def test_a_call_after_a_backward_pass_is_not_of_the_first_loss() -> None:
    with LossCalls() as calls:
        for _ in range(2):
            F.cross_entropy(OUTPUT.requires_grad_(), FOUR_LABELS).backward()

    assert [call.is_first for call in calls.noted] == [True, False]


@pytest.mark.parametrize("labels", [FOUR_LABELS + 1, FOUR_LABELS - 1], ids=["from 1", "from -1"])
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
        F.cross_entropy(OUTPUT, FOUR_LABELS.clone().fill_(255), ignore_index=255)
        nn.CrossEntropyLoss()(OUTPUT, torch.full((4,), -100))


def test_a_loss_that_is_written_out_is_known_by_its_value() -> None:
    call = LossCall.usual(OUTPUT, OUTPUT + 1, (OUTPUT - (OUTPUT + 1)).square().mean())

    assert call is not None
    assert call.name == "mse_loss"
    assert LossCall.usual(OUTPUT, OUTPUT + 1, torch.tensor(5.0)) is None


# ---- the check -------------------------------------------------------------------------------------------------------


LABELS = torch.arange(12) % 3


def asked(*losses: tuple[object, Tensor, Tensor]) -> Findings:
    """What is told of calls of losses."""
    with LossCalls() as calls:
        for loss, output, target in losses:
            loss(output, target)  # type: ignore[operator]
    return check_initial_loss(calls.noted)


def test_a_model_that_knows_nothing_is_clean() -> None:
    found = asked((F.cross_entropy, torch.zeros(12, 3), LABELS))

    assert found.is_clean
    assert found.covered[0].text == "cross_entropy 1.1 against 1.1 (ln 3; 1.1 by the shares of the classes)"


def test_more_than_twice_is_told_and_twice_is_not() -> None:
    target = torch.tensor([[-1.0], [1.0]])

    assert asked((F.mse_loss, target + 1.4, target)).is_clean
    found = asked((F.mse_loss, target + 1.5, target))
    assert [one.what for one in found] == [
        "the first loss, mse_loss 2.25, is 2.25 times that of a model that knows nothing"
    ]


def test_several_calls_before_the_first_backward_pass_are_told_as_their_mean() -> None:
    target = torch.tensor([[-1.0], [1.0]])
    found = asked((F.mse_loss, target + 1.7, target), (F.mse_loss, target, target))

    assert found.is_clean


def test_labels_as_shares_of_the_classes_are_known() -> None:
    target = F.one_hot(LABELS, 3).float()

    assert asked((F.cross_entropy, torch.zeros(12, 3), target)).is_clean
    assert not asked((F.cross_entropy, 50 * (1 - target), target)).is_clean


def test_logarithms_of_probabilities_are_right_for_both_losses() -> None:
    output = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).log_softmax(1)

    assert asked((F.nll_loss, output, LABELS), (F.cross_entropy, output, LABELS)).is_clean


def test_what_a_loss_is_not_made_for_is_an_error() -> None:
    output, target = torch.linspace(-3, 3, 36).reshape(12, 3), (LABELS > 0).float()
    found = asked(
        (F.nll_loss, output, LABELS),
        (F.binary_cross_entropy_with_logits, output[:, 0].requires_grad_().sigmoid(), target),
    )

    assert [(one.level, one.what, one.where, one.cure) for one in found if one.level == "error"] == [
        (
            "error",
            "nll_loss is given numbers that are not logarithms of probabilities",
            "",
            "put a log_softmax before it, or take cross_entropy",
        ),
        (
            "error",
            "binary_cross_entropy_with_logits is given probabilities, but takes what comes before a sigmoid",
            "sigmoid",
            "leave the sigmoid out of the model",
        ),
    ]


def test_targets_without_variance_are_never_called_clean() -> None:
    assert not asked((F.mse_loss, torch.ones(4), torch.ones(4))).is_clean


@pytest.mark.parametrize("shapes", [((1, 1), (1,)), ((1, 12), (12,)), ((12, 1), (12, 1))])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_two_shapes_that_are_not_stretched_are_no_error(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert list(asked((F.mse_loss, torch.zeros(shapes[0]), torch.ones(shapes[1])))) == []


@pytest.mark.parametrize("shapes", [((12, 1), (12,)), ((12,), (12, 1)), ((1, 12), (12, 1))])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_two_shapes_that_are_stretched_are_an_error(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    (found,) = asked((F.mse_loss, torch.zeros(shapes[0]), torch.ones(shapes[1])))

    assert found.what == (
        f"mse_loss compares each prediction with the targets of all examples: {shapes[0]} against {shapes[1]}"
    )
