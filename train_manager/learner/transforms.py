"""Functions of a column that a file may name: features, and augmentations of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError


@recorded
def divide(column: Tensor, by: float) -> Tensor:
    """Divide a column by a number.

    >>> divide(torch.tensor([8.0, 16.0]), by=16.0)
    tensor([0.5000, 1.0000])

    Raises:
        InputError: the number is 0.
    """
    if by == 0:
        raise InputError("by must not be 0", name="by")
    return column / by


@recorded
class Standardize:
    """Subtract the mean of the training rows from a column, and divide it by their standard deviation.

    >>> standardize = Standardize()
    >>> standardize.fit(torch.tensor([[1.0], [3.0]]))
    >>> standardize(torch.tensor([[4.0]]))
    tensor([[2.]])

    Args:
        each: take the mean and the deviation of each place of an example by itself; else of all values together.
    """

    def __init__(self, each: bool = False) -> None:
        self.each = each
        self.mean = self.deviation = torch.zeros(())

    def fit(self, rows: Tensor) -> None:
        """Take the mean and the standard deviation of the training rows."""
        values = rows if rows.is_floating_point() else rows.float()
        values = values if self.each else values.flatten().unsqueeze(1)
        self.deviation, self.mean = torch.std_mean(values, dim=0, correction=0)
        self.deviation[self.deviation == 0] = 1.0  # a place that is the same in all rows, as a corner of an image

    def __call__(self, column: Tensor) -> Tensor:
        return (column - self.mean) / self.deviation


@recorded
def shift(values: Tensor, pixels: int) -> Tensor:
    """Move each example by a random number of places, at most ``pixels``; zeros fill the border.

    Args:
        values: (examples, channels, length) or (examples, channels, height, width); without channels, (examples,
            length).
        pixels: the most places, along each axis.

    Raises:
        InputError: ``pixels`` is negative, or more than an example has.
    """
    most = max(values.shape[1:])
    if not 0 <= pixels <= most:
        raise InputError(f"pixels must be from 0 to {most}, but is {pixels}", name="pixels")
    for axis in range(2 if values.dim() > 2 else 1, values.dim()):
        size = values.shape[axis]
        steps = torch.randint(-pixels, pixels + 1, (len(values), 1), device=values.device)
        places = torch.arange(size, device=values.device) - steps
        shape = [len(values), *(1,) * (axis - 1), size, *(1,) * (values.dim() - axis - 1)]
        inside = ((places >= 0) & (places < size)).view(shape)
        values = values.gather(axis, places.clamp(0, size - 1).view(shape).expand_as(values)) * inside
    return values


@recorded
def noise(values: Tensor, std: float) -> Tensor:
    """Add normal noise of a standard deviation.

    Raises:
        InputError: ``values`` are not floating point numbers.
    """
    if not values.is_floating_point():
        raise InputError(f"noise takes floating point numbers, but was given {values.dtype}", name="noise")
    return values + std * torch.randn_like(values)
