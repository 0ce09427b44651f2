"""Gradient accumulation: one optimizer step for several batches, as if they were one large batch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from train_manager.core.decorators import modifies
from train_manager.core.extension import Extension
from train_manager.core.outcome import SkipStage
from train_manager.model.optimizers import parameters_with_gradients
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class Accumulate(Extension):
    """Step the optimizer once for every ``batches`` batches, with the gradient of the one large batch that they form.

    Each batch counts by its number of examples (``true_batch_size``), also in the shorter window at the end of an
    epoch. This is exact if the loss is a mean over examples and the model treats each example alone; BatchNorm still
    sees small batches.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Accumulate(2))
    >>> result = tm.train()
    >>> tm.step_num, tm.update_num
    (3, 2)

    A batch that is skipped before its backward pass is not part of the window. A batch that is skipped after it ends
    the window, because its gradient is already in the sum: the next batch begins a new window. ``stop`` or an error in
    the middle of a window ends it too, and a run that ends so warns. If the last batch of an epoch is skipped, the
    window goes on in the next epoch.

    *Runs at:* the start and the end of ``train_backward``, the start of ``train_optimizer_step`` and the end of
    ``run``, before extensions that read or change the gradients (priority -20).

    *Asks for:* ``backward_loss``, ``true_batch_size``, ``last_batch`` and ``step_num``; ``end_step`` if it is alive;
    the optimizer.

    *Leaves behind:* a modified ``backward_loss``, and the mean gradient when ``train_optimizer_step`` runs. Within a
    window that stage is skipped, and ``update_num`` stays.

    Args:
        batches: the number of batches for one step.

    Raises:
        InputError: ``batches`` is not a whole number of at least 1.
    """

    priority = -20  # before MixedPrecision unscales (-10) and ClipGradients clips (10)

    def __init__(self, batches: int) -> None:
        self.batches = require_count(batches, "batches", at_least=1)
        self._count = 0  # batches that are in the gradients
        self._first_size: int | Tensor = 1
        self._weight: float | Tensor = 0.0  # the sum of their sizes, in units of the first

    @modifies("backward_loss")
    def pre_train_backward(
        self, train_manager: TrainManager, backward_loss: Tensor, true_batch_size: int | Tensor
    ) -> Tensor:
        # The gradients themselves say where a window begins. The loop zeroes them at the start of a run, after a step
        # and after a skipped batch, and no hook would see each of these cases.
        if next(parameters_with_gradients(train_manager.optimizer), None) is None:
            self._first_size, self._count, self._weight = true_batch_size, 0, 0.0
        # In units of the first batch: equal batches have the weight 1, so that a scaled float16 loss does not overflow.
        return backward_loss * (true_batch_size / self._first_size)

    def post_run(self, train_manager: TrainManager) -> None:
        """Warn if the run ends within a window, because the next run drops its gradients."""
        if self._count and next(parameters_with_gradients(train_manager.optimizer), None) is not None:
            warnings.warn(
                f"Accumulate({self.batches}): the run ended within a window, so the gradients of {self._count} of its "
                f"{self.batches} batches are dropped (open a run around train_on_batch: `with tm.run():`)",
                stacklevel=2,
            )

    def post_train_backward(self, true_batch_size: int | Tensor) -> None:
        self._count += 1
        self._weight = self._weight + true_batch_size / self._first_size

    def pre_train_optimizer_step(
        self, train_manager: TrainManager, last_batch: bool, step_num: int, end_step: int | None = None
    ) -> None:
        is_last = last_batch or step_num + 1 == end_step
        if self._count == 0 or (self._count < self.batches and not is_last):  # 0: train_backward was skipped
            raise SkipStage
        with torch.no_grad():
            for parameter in parameters_with_gradients(train_manager.optimizer):
                assert parameter.grad is not None
                parameter.grad.div_(self._weight)  # in place and unread: the weight may be a tensor on a GPU
        self._count, self._weight = 0, 0.0
