"""Whether two tensors differ by more than rounding, and a digest of a tensor."""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PLACES: Final = 4096
"""Elements from which the usual size of all is estimated."""

SHARE_OF_DIGITS: Final = 2 / 3
"""The share of the digits of a number that must be equal; the others may differ by rounding."""


def differ(new: Tensor, base: Tensor, tolerance: float, size: float | None = None) -> Tensor:
    """Return for each element whether it differs by more than rounding.

    >>> differ(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.1, 3.0]), 1e-5)
    tensor([False,  True, False])

    Args:
        new: a tensor.
        base: another tensor of the same shape.
        tolerance: the relative difference that rounding may make.
        size: the size of the numbers whose sums these are; None for the usual size of these numbers.
    """
    if new.is_complex():
        return differ(torch.view_as_real(new), torch.view_as_real(base), tolerance, size).any(-1)
    if not new.is_floating_point():
        return new != base
    # The usual size is added: a number near zero may be the difference of large ones, and has their rounding.
    sizes = torch.maximum(new.abs(), base.abs()) + (usual_size(base) if size is None else size)
    is_far = (new - base).abs() > tolerance * sizes
    is_finite = new.isfinite() & base.isfinite()
    # nan equals nan, and an infinity equals one of its sign: a mask of -inf is not a difference.
    return torch.where(is_finite, is_far, ~((new == base) | (new.isnan() & base.isnan())))


def usual_size(tensor: Tensor) -> float:
    """Return the median size of the elements that are not zero; one huge element, as in a mask, does not change it."""
    flat = tensor.detach().flatten()
    some = flat[:: max(1, flat.numel() // PLACES)].abs().float()
    some = some[some.isfinite() & (some > 0)]
    return float(some.median()) if some.numel() else 0.0


def tolerance_of(*dtypes: torch.dtype) -> float:
    """Return the relative difference that rounding may make in a computation in these dtypes."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    eps = max((torch.finfo(dtype).eps for dtype in floats), default=torch.finfo(torch.float32).eps)
    return float(eps**SHARE_OF_DIGITS)


def digest(rows: Tensor, places: int) -> Tensor:
    """Return a few numbers of each row, and their scaled sum; digests of two rows add up as the rows do.

    >>> digest(torch.ones(1, 4), 2)
    tensor([[1., 1., 2.]])
    """
    rows = (torch.view_as_real(rows) if rows.is_complex() else rows).detach().unsqueeze(-1).flatten(1)
    count = rows.shape[1]
    at = torch.linspace(0, count - 1, min(count, places)).long().to(rows.device)
    wide = torch.promote_types(rows.dtype, torch.float32)
    # Divided by the root of the count, the sum of random numbers is as large as one of them.
    sums = rows.sum(1, keepdim=True, dtype=wide) / max(count, 1) ** 0.5
    return torch.cat([rows[:, at].to(wide), sums], 1).cpu()


@final
class Watched(TorchFunctionMode):
    """A ``with`` block that notes the dtypes of all results, and the shapes of all random numbers.

    The dtypes show an autocast inside of a model. Dropout is off in the block, because its numbers for a row depend on
    the rows before it.

    >>> with Watched() as watched:
    ...     torch.nn.functional.dropout(torch.rand(2) + torch.ones(2, dtype=torch.bfloat16)).shape
    torch.Size([2])
    >>> watched.drawn, sorted(map(str, watched.dtypes))
    ([('rand', (2,))], ['torch.bfloat16', 'torch.float32'])
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()  # of all results
        # The functions that have drawn random numbers, and the shapes of their results.
        self.drawn: list[tuple[str, tuple[int, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name or "attention" in name:
            kwargs |= {key: off for key, off in (("training", False), ("dropout_p", 0.0)) if key in kwargs}
        # A function that changes the state of the generator has drawn, whatever its name is.
        before = torch.default_generator.get_state()
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self.dtypes.add(result.dtype)
        if not torch.equal(before, torch.default_generator.get_state()):
            self.drawn.append((name, tuple(getattr(result, "shape", ()))))
        return result
