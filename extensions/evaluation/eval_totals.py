"""Totals of an evaluation: the numbers of batches and examples, and the sum of their losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from train_manager.core.declarations import provides
from train_manager.core.extension import Extension
from train_manager.data.shares import ALONE, is_stand_in
from train_manager.loop.ranks import ranks_of
from train_manager.metrics.averages import in_32_bits
from train_manager.metrics.deferred import on_host
from train_manager.rebuilding.recorded import recorded

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class EvalTotals(Extension):
    """Provide the sums that the mean loss of an evaluation is computed from, as they grow.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> def show(num_batches, num_samples, cum_loss):
    ...     print(num_batches, num_samples, f"{cum_loss / num_samples:.2f}")
    >>> tm = tiny_manager(EvalTotals(), Extension.of(post_eval_step_epoch=show))
    >>> print(f"{tm.eval()['valid']['loss']:.2f}")
    2 32 0.70
    0.70

    *Runs at:* the start and the end of ``eval_step_epoch``, and the end of ``eval_step_batch``.

    *Asks for:* ``loss`` and ``true_batch_size``.

    *Leaves behind:* ``num_batches``, ``num_samples`` and ``cum_loss`` of ``eval_step_epoch``, renewed by every batch
    that is not skipped. ``cum_loss`` is a sum over examples, a tensor; it is not read on the host. Where several
    processes train together, they are those of this process until the end of ``eval_step_epoch``, and then of all.
    """

    def __init__(self) -> None:
        self._totals: tuple[int, int, Tensor | float] = (0, 0, 0.0)  # batches, examples, sum of their losses

    def totals(self) -> tuple[Tensor | float, int]:
        """Return the sum of the losses so far, by examples, and the number of examples."""
        _, samples, cum_loss = self._totals
        return cum_loss, samples

    def pre_eval_step_epoch(self) -> None:
        self._totals = (0, 0, 0.0)

    @provides("num_batches", "num_samples", "cum_loss", stage="eval_step_epoch")
    def post_eval_step_batch(self, loss: Tensor, true_batch_size: int) -> tuple[int, int, Tensor | float]:
        if is_stand_in(true_batch_size):
            return self._totals
        batches, samples, cum_loss = self._totals
        # Losses are means over a batch: times its size they are
        # sums over examples, which batches of any size add up to.
        self._totals = (batches + 1, samples + true_batch_size, cum_loss + in_32_bits(loss.detach()) * true_batch_size)
        return self._totals  # `@provides`: the values of the three fixtures, in the order of their names

    @provides("num_batches", "num_samples", "cum_loss", stage="eval_step_epoch")
    def post_eval_step_epoch(self, train_manager: TrainManager | None = None) -> tuple[int, int, Tensor | float]:
        ranks = ranks_of(train_manager)
        if ranks.place is not ALONE:
            batches, samples, losses = zip(*ranks.gather(tuple(map(on_host, self._totals))), strict=True)
            # Each batch is shared by all processes, so that the number of batches is not their sum.
            self._totals = max(batches), sum(samples), sum(losses)
        return self._totals
