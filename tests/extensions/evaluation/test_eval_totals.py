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
