"""The last histogram of each of several series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.metrics.histogram import histogram_of
from train_manager.model.sharding import as_whole

BINS: Final = 64  # of equal width, over the range of the values


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
