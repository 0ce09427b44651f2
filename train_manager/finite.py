"""Finding the first loss that is nan or infinite, without reading a loss in each step."""

from __future__ import annotations

import math
from typing import final

from train_manager.errors import NonFiniteLoss
from train_manager.held import HeldScalars


@final
class FiniteLosses(HeldScalars):
    """The losses of one epoch; they are looked at together, at the end or a thousand at a time.

    Attributes:
        last_step: the step, counted from 1, of the last loss, as who appends it says; the steps follow each other.
    """

    last_step = 0

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._epoch = epoch

    def check(self) -> None:
        """Look at the losses since the last look.

        Raises:
            NonFiniteLoss: naming the first step whose loss was nan or infinite.
        """
        losses = self.take()
        first = self.last_step - len(losses) + 1
        broken = [(step, loss) for step, loss in enumerate(losses, start=first) if not math.isfinite(loss)]
        if broken:
            step, loss = broken[0]
            raise NonFiniteLoss(
                f"the loss was {loss} in step {step}, epoch {self._epoch}, "
                f"and not finite in {len(broken)} of {len(losses)} steps looked at together",
                epoch=self._epoch,
                step=step,
                cure="a smaller learning rate, clipped gradients, or a look at that step's batch may help",
            )
