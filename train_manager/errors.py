"""What can go wrong in a training run, beside what can go wrong with stages and fixtures (``core/errors.py``).

TrainManagerError
├── InputError      (ValueError)        an argument, the data, or what the model or the loss returned, is of no use
└── NonFiniteLoss   (ArithmeticError)   the loss was nan or infinite
"""

from __future__ import annotations

from train_manager.core.errors import TrainManagerError


class InputError(TrainManagerError, ValueError):
    """An argument, the data, or what the model or the loss returned, cannot be trained with."""


class NonFiniteLoss(TrainManagerError, ArithmeticError):
    """The training loss was nan or infinite.

    Attributes:
        epoch: epoch in which it was first so, counted from 1.
        step: step in which it was first so, counted from 1 over the whole training.
    """

    def __init__(self, what: str, *, epoch: int = 0, step: int = 0, cure: str = "") -> None:
        super().__init__(what, cure=cure)
        self.epoch = epoch
        self.step = step


for _error in (InputError, NonFiniteLoss):
    _error.__module__ = "train_manager"
