"""Clipping as arithmetic: it is that of torch."""

from __future__ import annotations

from math import inf

import pytest
import torch
from torch import Tensor

from train_manager.model.clipping import Limits, clip


@pytest.mark.parametrize("limits", [Limits(0.5, None, 2.0), Limits(None, 0.3, 2.0), Limits(9.0, 0.3, inf)])
def test_gradients_and_norm_are_those_of_torch(limits: Limits) -> None:
    parameters = [torch.zeros(size, dtype=dtype) for size, dtype in ((3, torch.float32), (2, torch.float64))]
    for number, one in enumerate(parameters):
        one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(number)).to(one.dtype)
    before: list[Tensor | None] = [None if one.grad is None else one.grad.clone() for one in parameters]

    clipped = clip(limits.clipping, torch.tensor(limits.values, dtype=torch.float64), before)
    norm = torch.nn.utils.clip_grad_norm_(parameters, limits.max_norm or inf, limits.norm_type)
    if limits.value is not None:
        torch.nn.utils.clip_grad_value_(parameters, limits.value)

    torch.testing.assert_close(clipped.gradients, [one.grad for one in parameters])
    torch.testing.assert_close(clipped.norm, norm, check_dtype=False)
