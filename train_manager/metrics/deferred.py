"""Scalars of many steps, kept where they were computed and copied to the host together.

Reading a scalar from a GPU makes Python wait for all work before it. Whoever wants one value per step for later
keeps it here: a step then costs an append, and one copy brings up to a thousand values.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from train_manager.core.errors import InputError, NonFiniteLoss


def must_be_copied(value: Tensor) -> bool:
    """Whether the next scalar may be written into the same memory, so that one that is kept must be copied.

    So it is on a GPU, where CUDA graphs do that, and for what was itself written into memory that was there before.
    Elsewhere the copy would be most of the cost of keeping it; ``take`` sees if it should have been made.
    """
    return not value.is_cpu or value.is_inference() or value._version > 0 or value._is_view()


class HeldScalars:
    """A list of scalar tensors that is read in one go, rarely.

    >>> losses = HeldScalars()
    >>> for value in (.5, .25):
    ...     is_full = losses.append(torch.tensor(value))
    >>> len(losses), losses.take()
    (2, [0.5, 0.25])
    >>> losses.take()
    []
    """

    limit = 1024  # a held scalar occupies up to 512 bytes on a GPU

    def __init__(self) -> None:
        self._held: list[Tensor] = []
        self._copies = True

    def __len__(self) -> int:
        return len(self._held)

    def append(self, value: Tensor) -> bool:
        """Keep a scalar, without its graph and without waiting for it.

        Returns:
            Whether it is time to take them.
        """
        held = self._held
        if not held:
            self._copies = must_be_copied(value)
        try:
            copies = self._copies or value._version
        except RuntimeError:  # a tensor of inference has none
            copies = True
        held.append(value.detach().clone() if copies else value.detach())
        return len(held) >= self.limit

    def take(self) -> list[float]:
        """All values, oldest first, in one copy; nothing is held afterwards.

        Raises:
            InputError: one was changed in place after it was kept, and is lost.
        """
        held, self._held = self._held, []
        if not self._copies and any(map(_version_of, held)):
            raise InputError(
                "a scalar that was kept to be read later, such as the loss of a step, was changed in place since",
                name="loss",
                cure="make a new one instead: loss = loss * 2, not loss.mul_(2)",
            )
        return torch.stack(held).tolist() if held else []


def _version_of(value: Tensor) -> int:
    """How often a tensor was changed in place."""
    return 0 if value.is_inference() else value._version


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
