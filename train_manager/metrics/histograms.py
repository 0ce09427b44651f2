"""The last histogram of each of several series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from torch import Tensor

BINS: Final = 64


@final
class Histograms(dict[str, tuple[Tensor, Tensor]]):
    """Edges and counts by name, on their device until somebody reads them.

    >>> import torch
    >>> from train_manager.metrics.histogram import histogram_of
    >>> histograms = Histograms(weights=histogram_of(torch.ones(5), BINS))
    >>> histograms["weights"][1].sum()
    tensor(5)
    """

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return all edges and counts, on the host."""
        return {name: [part.cpu() for part in histogram] for name, histogram in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: (edges, counts) for name, (edges, counts) in state.items()})
