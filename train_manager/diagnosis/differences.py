"""Whether two tensors differ by more than rounding."""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PLACES: Final = 4096
"""So many elements tell the usual size of all."""

SHARE_OF_DIGITS: Final = 2 / 3
"""So much of the digits of a number must be equal; the others are rounding."""


def differ(new: Tensor, base: Tensor, tolerance: float) -> Tensor:
    """Return for each element whether it differs by more than rounding.

    >>> differ(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.1, 3.0]), 1e-5)
    tensor([False,  True, False])
    """
    if new.is_complex():
        return differ(torch.view_as_real(new), torch.view_as_real(base), tolerance).any(-1)
    if not new.is_floating_point():
        return new != base
    size = torch.maximum(new.abs(), base.abs())
    is_far = (new - base).abs() > tolerance * (size + usual_size(base))
    is_finite = new.isfinite() & base.isfinite()
    return torch.where(is_finite, is_far, ~((new == base) | (new.isnan() & base.isnan())))


def usual_size(tensor: Tensor) -> float:
    """Return the median size of the elements that are not zero; one huge element, as in a mask, does not change it."""
    flat = tensor.detach().flatten()
    some = flat[:: max(1, flat.numel() // PLACES)].abs().float()
    some = some[some.isfinite() & (some > 0)]
    return float(some.median()) if some.numel() else 0.0


def tolerance_of(*dtypes: torch.dtype) -> float:
    """Return what rounding may change at most, where all is computed in these types of number."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    eps = max((torch.finfo(dtype).eps for dtype in floats), default=torch.finfo(torch.float32).eps)
    return float(eps**SHARE_OF_DIGITS)


@final
class SeenDtypes(TorchFunctionMode):
    """Notes, for a ``with`` block, in which types of number is computed; autocast inside a model is seen by them.

    >>> number = torch.ones(2, dtype=torch.bfloat16)
    >>> with SeenDtypes() as seen:
    ...     _ = number + 1
    >>> seen.dtypes
    {torch.bfloat16}
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.dtypes.add(result.dtype)
        return result
