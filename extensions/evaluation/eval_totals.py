"""Totals of an evaluation: the numbers of batches and examples, and the sum of their losses."""

from __future__ import annotations

from torch import Tensor

from train_manager.core.decorators import provides
from train_manager.core.extension import Extension
from train_manager.metrics.averages import in_32_bits
from train_manager.rebuilding.recorded import recorded


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

    *Runs at:* the start of ``eval_step_epoch`` and the end of ``eval_step_batch``.

    *Asks for:* ``loss`` and ``true_batch_size``.

    *Leaves behind:* ``num_batches``, ``num_samples`` and ``cum_loss`` of ``eval_step_epoch``, renewed by every batch
    that is not skipped. ``cum_loss`` is a sum over examples, a tensor; it is not read on the host.
    """

    def __init__(self) -> None:
        self._totals: tuple[int, int, Tensor | float] = (0, 0, 0.0)

    def totals(self) -> tuple[Tensor | float, int]:
        """Return the sum of the losses so far, by examples, and the number of examples."""
        _, samples, cum_loss = self._totals
        return cum_loss, samples

    def pre_eval_step_epoch(self) -> None:
        self._totals = (0, 0, 0.0)

    @provides("num_batches", "num_samples", "cum_loss", stage="eval_step_epoch")
    def post_eval_step_batch(self, loss: Tensor, true_batch_size: int) -> tuple[int, int, Tensor | float]:
        batches, samples, cum_loss = self._totals
        self._totals = (batches + 1, samples + true_batch_size, cum_loss + in_32_bits(loss.detach()) * true_batch_size)
        return self._totals
