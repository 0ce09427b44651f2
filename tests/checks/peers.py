"""Two checks that others use, as thin as what they do: each says yes or no for a model and a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.checks.cases import Case
from tests.checks.examples import called, differ, mapped, parts_of, size_of, tensors_in

Answer = bool | None
"""Whether there is a leak; None if the check does not take the model or the batch."""


def gradient_of_one(case: Case, model: nn.Module, batch: Any) -> Answer:
    """``BatchGradientVerification`` of Lightning Bolts: of one example's outputs, which inputs have a gradient?"""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
    batch = mapped(batch, lambda leaf: leaf.requires_grad_() if leaf.is_floating_point() else leaf)
    inputs = [leaf for leaf in tensors_in(batch) if leaf.requires_grad]
    if not inputs:
        return None
    size, axis = size_of(case, batch), case.options.get("batch_axis", 0)
    outputs = [leaf for leaf in tensors_in(called(case, model, batch)) if leaf.requires_grad]
    rows = torch.cat([leaf.movedim(axis, 0).reshape(size, -1) for leaf in outputs], 1)
    rows[0].sum().backward()
    gradients = [leaf.grad.movedim(axis, 0) for leaf in inputs if leaf.grad is not None]
    return any(bool(gradient[1:].any()) for gradient in gradients)


def rows_of_their_own(case: Case, model: nn.Module, batch: Any) -> Answer:
    """``test_batching_equivalence`` of transformers: does an example alone give what it gives in the batch?"""
    model.eval()
    size, axis = size_of(case, batch), case.options.get("batch_axis", 0)
    shared = case.options.get("shared", ())

    def first(leaf: Tensor) -> Tensor:
        return leaf.narrow(axis if leaf.ndim > axis and leaf.shape[axis] == size else 0, 0, 1)

    if isinstance(batch, dict):
        alone: Any = {key: one if key in shared else mapped(one, first) for key, one in batch.items()}
    else:
        alone = ([batch[0][0]], *batch[1:]) if isinstance(batch[0], list) else mapped(batch, first)
    with torch.no_grad():
        together = list(parts_of(called(case, model, batch), size, axis))
        single = list(parts_of(called(case, model, alone), 1, axis))
    if not together or len(together) != len(single):
        return None
    pairs = [(parts[0], one[0]) for parts, one in zip(together, single, strict=True)]
    return any(differ(one.double(), other.double(), 1e-5) for one, other in pairs if not one.is_complex())


PEERS: Final[dict[str, Callable[[Case, nn.Module, Any], Answer]]] = {
    "`BatchGradientVerification` (Lightning Bolts)": gradient_of_one,
    "`test_batching_equivalence` (transformers)": rows_of_their_own,
}
