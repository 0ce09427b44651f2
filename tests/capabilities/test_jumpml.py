"""Row J32 of the capabilities: JumpML's evaluation with a list of functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from train_manager.extensions import Metrics
from train_manager.testing import tiny_manager


def right(pred: Tensor, truth: Tensor) -> Tensor:
    return (pred.argmax(dim=1) == truth).float().mean()


def size(pred: Tensor, truth: Tensor) -> int:
    return len(truth)


def test_j32_a_model_is_evaluated_with_a_list_of_plain_functions_weighted_over_unequal_batches() -> None:
    inputs, truth = torch.rand(10, 2), torch.tensor([0, 1] * 5)
    batches = list(zip(inputs.split(8), truth.split(8), strict=True))
    tm = tiny_manager(Metrics(eval=[right, size]), eval_data={"test": batches})
    result = tm.eval()["test"]

    with torch.no_grad():
        by_hand = right(tm.model(inputs), truth).item()
    assert result["right"] == pytest.approx(by_hand)
    assert result["size"] == pytest.approx((8 * 8 + 2 * 2) / 10)
