from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from train_manager.checks.initial_loss import check_initial_loss
from train_manager.checks.loss_calls import LossCalls
from train_manager.telling.findings import Findings

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
