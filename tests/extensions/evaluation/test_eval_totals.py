from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.adding import mean_of_parts
from train_manager import Extension
from train_manager.extensions import EvalTotals
from train_manager.testing import tiny_manager


def sets() -> dict[str, list[tuple[Tensor, Tensor]]]:
    inputs, targets = torch.rand(10, 2), torch.zeros(10, dtype=torch.long)
    return {"a": list(zip(inputs.split(4), targets.split(4), strict=True)), "b": [(inputs[:3], targets[:3])]}


def test_totals_grow_with_every_batch() -> None:
    seen: list[Any] = []
    show = Extension.of(post_eval_step_batch=lambda num_samples: seen.append(num_samples))
    tiny_manager(EvalTotals(), show, eval_data=sets()).eval()

    assert seen == [4, 8, 10, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_in_16_bits_are_added_up_in_32(dtype: torch.dtype) -> None:
    totals = EvalTotals()
    totals.pre_eval_step_epoch()
    for _ in range(3000):
        found = totals.post_eval_step_batch(torch.tensor(1.5, dtype=dtype), true_batch_size=1)

    assert float(found[2]) == 4500


def totals_of(*batches: tuple[float, int]) -> EvalTotals:
    totals = EvalTotals()
    for loss, size in batches:
        totals.post_eval_step_batch(torch.tensor(loss), size)
    return totals


def test_totals_of_two_halves_of_a_set_give_the_mean_loss_of_the_whole() -> None:
    first, second, whole = totals_of((1.0, 3), (2.5, 4)), totals_of((7.0, 1)), totals_of((1.0, 3), (2.5, 4), (7.0, 1))

    assert mean_of_parts(first.totals(), second.totals()) == mean_of_parts(whole.totals()) == torch.tensor(2.5)
