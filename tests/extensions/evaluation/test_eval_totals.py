from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from train_manager import Extension
from train_manager.extensions import EvalTotals
from train_manager.testing import tiny_manager


def sets() -> dict[str, list[tuple[Tensor, Tensor]]]:
    inputs, targets = torch.rand(10, 2), torch.zeros(10, dtype=torch.long)
    return {"a": list(zip(inputs.split(4), targets.split(4), strict=True)), "b": [(inputs[:3], targets[:3])]}


def test_totals_count_the_batches_and_examples_of_each_set() -> None:
    seen: list[Any] = []
    show = Extension.of(post_eval_step_epoch=lambda num_batches, num_samples: seen.append((num_batches, num_samples)))
    tiny_manager(EvalTotals(), show, eval_data=sets()).eval()

    assert seen == [(3, 10), (1, 3)]


def test_totals_grow_with_every_batch() -> None:
    seen: list[Any] = []
    show = Extension.of(post_eval_step_batch=lambda num_samples: seen.append(num_samples))
    tiny_manager(EvalTotals(), show, eval_data=sets()).eval()

    assert seen == [4, 8, 10, 3]


def test_the_sum_of_losses_divided_by_the_examples_is_the_mean_loss() -> None:
    seen: list[float] = []
    show = Extension.of(
        post_eval_step_epoch=lambda cum_loss, num_samples: seen.append(cum_loss.item() / num_samples),
    )
    result = tiny_manager(EvalTotals(), show, eval_data=sets()).eval()

    assert seen == [pytest.approx(result["a"]["loss"]), pytest.approx(result["b"]["loss"])]
