"""Functions of a column that a file may name, and the augmentation of training batches by them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor

from train_manager.core.declarations import modifies
from train_manager.core.extension import Extension
from train_manager.data.random_state import preserve_random_state
from train_manager.learner.description import Description, FileMistakes, Spot
from train_manager.learner.entries import FUNCTION, is_among, named_error, read_entry
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


# ---- the augmentation ----------------------------------------------------------------------------------------------

ColumnChange = tuple[str, partial[Tensor]]
"""A column, and the function that changes it."""


@final
@recorded
class Augment(Extension):
    """Change the inputs of each training batch by functions that a file names.

    >>> import torch
    >>> augment = Augment([{"use": "noise", "std": 0.1}], ["image"])
    >>> augment.views(torch.zeros(2, 8)).shape
    torch.Size([2, 8])

    The functions draw from torch's own random state, so a training resumes with the same numbers.

    *Runs at:* the start of ``train_step_batch``.

    *Asks for:* ``batch``.

    *Leaves behind:* the changed ``batch``.

    Args:
        functions: tables ``{use = "word"}`` with the arguments beside it, and ``of``, the column, if there are several.
        inputs: the names of the input columns.
    """

    def __init__(self, functions: list[dict[str, Any]], inputs: list[str]) -> None:
        mistakes = FileMistakes()
        read = Description.read({"augment": functions}, "augment").root(mistakes)
        self._changes = read_augment(read.below("augment"), inputs)
        mistakes.raise_all()

    @modifies("batch")
    def pre_train_step_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "inputs": self.views(batch["inputs"])}

    def views(self, inputs: Any) -> Any:
        """Return changed copies of inputs; a column that is not there is left out."""
        for column, change in self._changes:
            if not isinstance(inputs, Mapping):
                inputs = change(inputs)
            elif column in inputs:
                inputs = {**inputs, column: change(inputs[column])}
        return inputs


def read_augment(spot: Spot, inputs: list[str]) -> list[ColumnChange]:
    """Return the changes that a list ``augment`` names."""
    found = []
    for index in range(len(spot.value)):
        entry = read_entry(spot.below(index), FUNCTION, keys=("of",))
        column = read_column(spot.below(index), inputs)
        if entry is not None and column is not None:
            found.append((column, partial(entry.thing, **entry.arguments)))
    return found


def try_changes(spot: Spot, changes: list[ColumnChange], inputs: Mapping[str, Tensor]) -> None:
    """Call the functions of a list ``augment`` with two examples: an error comes now, not in the first batch."""
    for index, (column, change) in enumerate(changes):
        example = inputs[column][:2]
        try:
            with preserve_random_state():
                changed = change(example.clone())
            if changed.shape == example.shape:
                continue
            what = f"makes {list(changed.shape)} of {list(example.shape)}, but must keep the shape"
        except Exception as error:
            what = f"raised {named_error(error)}"
        spot.below(index).wrong(f"is {change.func.__name__}, which {what}")


def read_column(spot: Spot, inputs: list[str]) -> str | None:
    """Return the column that an entry of ``features`` or ``augment`` is of; None if it is a mistake."""
    given = spot.value.get("of")
    if given is None and len(inputs) == 1:
        return inputs[0]
    if not inputs:  # a mistake that is reported already
        return None
    if given is None:
        spot.wrong(f'lacks of = "...", one of the inputs {" and ".join(inputs)}')
        return None
    return given if is_among(spot.below("of"), given, inputs, "is not one of the inputs") else None
