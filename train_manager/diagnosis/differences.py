"""Whether two tensors differ by more than rounding; a few numbers that stand for a tensor."""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PLACES: Final = 4096
"""So many elements tell the usual size of all."""

SHARE_OF_DIGITS: Final = 2 / 3
"""So much of the digits of a number must be equal; the others are rounding."""


def differ(new: Tensor, base: Tensor, tolerance: float, size: float | None = None) -> Tensor:
    """Return for each element whether it differs by more than rounding.

    >>> differ(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.1, 3.0]), 1e-5)
    tensor([False,  True, False])

    Args:
        new: a tensor.
        base: one of the same shape.
        tolerance: what rounding may change.
        size: how large numbers are that were added up to these; None for the usual size of these.
    """
    if new.is_complex():
        return differ(torch.view_as_real(new), torch.view_as_real(base), tolerance, size).any(-1)
    if not new.is_floating_point():
        return new != base
    sizes = torch.maximum(new.abs(), base.abs()) + (usual_size(base) if size is None else size)
    is_far = (new - base).abs() > tolerance * sizes
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


def digest(rows: Tensor, places: int) -> Tensor:
    """Return a few numbers of each row and one of their sum, in the size of one of them; they add up as the rows do.

    >>> digest(torch.ones(1, 4), 2)
    tensor([[1., 1., 2.]])
    """
    rows = (torch.view_as_real(rows) if rows.is_complex() else rows).detach().unsqueeze(-1).flatten(1)
    count = rows.shape[1]
    at = torch.linspace(0, count - 1, min(count, places)).long().to(rows.device)
    wide = torch.promote_types(rows.dtype, torch.float32)
    sums = rows.sum(1, keepdim=True, dtype=wide) / max(count, 1) ** 0.5
    return torch.cat([rows[:, at].to(wide), sums], 1).cpu()


@final
class Watched(TorchFunctionMode):
    """Notes, for a ``with`` block, in which types of number is computed, and the shapes of what is drawn at random.

    Autocast inside of a model is seen by the types. Other rows may draw as many numbers, in other shapes. Dropout lets
    all through, since what it draws for a row may depend on those before it.

    >>> with Watched() as watched:
    ...     torch.nn.functional.dropout(torch.rand(2) + torch.ones(2, dtype=torch.bfloat16)).shape
    torch.Size([2])
    >>> watched.drawn, sorted(map(str, watched.dtypes))
    ([('rand', (2,))], ['torch.bfloat16', 'torch.float32'])
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()
        self.drawn: list[tuple[str, tuple[int, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name or "attention" in name:
            kwargs |= {key: off for key, off in (("training", False), ("dropout_p", 0.0)) if key in kwargs}
        before = torch.default_generator.get_state()
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self.dtypes.add(result.dtype)
        if not torch.equal(before, torch.default_generator.get_state()):
            self.drawn.append((name, tuple(getattr(result, "shape", ()))))
        return result
