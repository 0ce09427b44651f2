"""An error for a loss that is nan or infinite, before the epoch ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.metrics.deferred import FiniteLosses
from train_manager.rebuilding.recorded import recorded
from train_manager.validation import require_count


@recorded
class StopOnNonFinite(Extension):
    """End the training with ``NonFiniteLoss`` soon after the first loss that is nan or infinite.

    The loop itself checks the losses at the end of each epoch. This extension checks them every ``check_every`` steps,
    for epochs that take hours. Each check waits for the device once, for all losses since the last check.

    >>> from train_manager import NonFiniteLoss
    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(StopOnNonFinite(check_every=2), loss=lambda output, targets: output.sum() / 0)
    >>> try:
    ...     tm.train()
    ... except NonFiniteLoss as error:
    ...     print(error.step, tm.step_num)
    1 2

    *Runs at:* the start of ``train_step_epoch``, and the end of ``train_step_batch``, after other hooks, so that they
    have seen the step (priority 1000).

    *Asks for:* ``loss``, ``step_num``, ``epoch_num`` and ``batches_done``.

    *Leaves behind:* nothing.

    Args:
        check_every: the number of steps between two checks.

    Raises:
        InputError: ``check_every`` is not a whole number of at least 1.
    """

    def __init__(self, check_every: int = 100) -> None:
        self.check_every: int = require_count(check_every, "check_every", at_least=1)
        self._losses: FiniteLosses | None = None  # the losses since the last check, still on their device
        self._count = 0  # steps since the last check

    def pre_train_step_epoch(self, batches_done: int) -> None:
        if not batches_done:
            # The loop has checked the losses of the epoch before at its end, or an error has ended that epoch. An epoch
            # that resumes (batches_done > 0) keeps its losses.
            self._forget()

    @priority(1000)  # last: a NonFiniteLoss here must not keep the hooks of other extensions from this step
    def post_train_step_batch(self, loss: Tensor, step_num: int, epoch_num: int) -> None:
        self._losses = self._losses or FiniteLosses(epoch_num + 1)
        self._losses.append(loss, step_num)
        self._count += 1
        if self._count >= self.check_every:
            losses = self._losses
            # Forgotten before the check: if it raises, and the program catches the
            # error and trains on, the same loss must not end the next step too.
            self._forget()
            losses.check()

    def _forget(self) -> None:
        self._losses, self._count = None, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps since the last check; the loop has checked their losses as it saves."""
        return {**super().state_dict(), "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        # The losses themselves were checked by the loop before it saved.
        self._losses, self._count = None, state["count"]
