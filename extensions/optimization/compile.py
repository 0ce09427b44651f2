"""A training batch, or what no hook looks into of it, as one graph of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from train_manager.core.extension import Extension
from train_manager.loop.compiled import CompiledBatch
from train_manager.rebuilding.recorded import recorded

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Compile(Extension):
    """Train on a batch as one graph.
    """

    sole = True

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        train_manager._compiled = CompiledBatch()
        try:
            yield
        finally:
            train_manager._compiled = None
