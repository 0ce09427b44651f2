"""Histograms that are counted on the device of the values: nothing is read, so nothing waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.metrics.host_numbers import tensor_of
from train_manager.model.sharding import as_whole

BINS: Final = 64  # of equal width, over the range of the values


@torch.no_grad()
def histogram_of(values: Any, bins: int) -> tuple[Tensor, Tensor]:
    """Return the edges of bins of equal width, and how many finite values are in each; the last has its upper edge.

    >>> histogram_of([0, .1, .6, 1.], bins=2)
    (tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64), tensor([2, 2]))

    Args:
        values: a tensor, an array, numbers, or lists of these of any shapes.
        bins: how many.

    Raises:
        TypeError, ValueError, OverflowError: they are not numbers.
    """
    found = flat(values)
    if found.is_complex():
        raise TypeError("complex numbers have no order")
    found = found.to(torch.float32 if found.is_mps else torch.float64)  # MPS has no 64-bit floats
    is_finite = found.isfinite()
    edges = edges_of(found, is_finite, bins)
    # The upper edge belongs to the last bin, so the place behind it is clamped into it.
    places = torch.bucketize(found, edges, right=True).sub_(1).clamp_(0, bins - 1)
    places = places.masked_fill_(~is_finite, bins)  # nan and infinities go into a place behind the bins
    counts = torch.zeros(bins + 1, dtype=torch.int64, device=found.device)
    counts.scatter_add_(0, places, torch.ones_like(places))
    return edges, counts[:bins]


def edges_of(values: Tensor, is_finite: Tensor, bins: int) -> Tensor:
    """Return the edges of bins over all finite values; from 0 to 1 if there are none."""
    if not values.numel():
        return torch.linspace(0.0, 1.0, bins + 1, dtype=values.dtype, device=values.device)
    infinity = torch.full((), torch.inf, dtype=values.dtype, device=values.device)
    low, high = torch.where(is_finite, values, infinity).amin(), torch.where(is_finite, values, -infinity).amax()
    # torch.where and not `if`, here and below: a branch would wait for the device.
    has_any = is_finite.any()
    low, high = torch.where(has_any, low, 0.0), torch.where(has_any, high, 1.0)
    # If all values are equal, the bins reach from the value to 1 above it; from half of the value to the value, if it
    # is so large that adding 1 changes nothing.
    top = torch.where(low == high, torch.where(low + 1.0 > low, low + 1.0, torch.maximum(low, low / 2)), high)
    low = torch.where(low == top, torch.minimum(low, low / 2), low)
    width = top / bins - low / bins  # top - low could be infinite
    half = torch.arange(bins + 1, dtype=values.dtype, device=values.device) / 2
    # In two halves, because width * bins could be infinite too.
    edges = torch.minimum(low + width * half + width * half, top)
    edges[-1] = top
    return edges


def flat(values: Any) -> Tensor:
    """Return all numbers in one row; lists may hold tensors, and lists of other lengths.

    Raises:
        TypeError: they are not numbers.
    """
    if isinstance(values, Iterable) and not (hasattr(values, "__array__") or isinstance(values, str | bytes | Mapping)):
        values = list(values)
        if any(isinstance(one, Tensor | Iterable) for one in values):
            parts = [flat(one) for one in values]
            return torch.cat([part.to(parts[0].device) for part in parts])
    return tensor_of(values).reshape(-1)


@final
class Histograms(dict[str, tuple[Tensor, Tensor]]):
    """Edges and counts by name, on their device until somebody reads them.

    >>> histograms = Histograms()
    >>> histograms.count("weights", [torch.ones(2, 2), torch.ones(1)], writer=None)
    >>> histograms["weights"][1].sum()
    tensor(5)
    """

    def count(self, name: str, tensors: Sequence[Tensor], writer: Any) -> None:
        """Count the numbers of some tensors together, for a store too; the rows of a sparse gradient are added up."""
        tensors = [as_whole(each.detach()) for each in tensors]
        # A sparse gradient may have a row several times, which are summands of one number.
        dense = [each.coalesce().values() if each.is_sparse else each for each in tensors]
        values = torch.cat([each.reshape(-1) for each in dense])
        # A store counts too, and returns the same.
        self[name] = histogram_of(values, BINS) if writer is None else writer.histogram(name, values, bins=BINS)

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return all edges and counts, on the host."""
        return {name: [part.cpu() for part in histogram] for name, histogram in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: (edges, counts) for name, (edges, counts) in state.items()})
