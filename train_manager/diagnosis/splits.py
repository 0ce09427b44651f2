"""Splits of a batch by the bits of an example's number, which together tell any two examples apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Split(NamedTuple):
    """Half of the examples, which is changed while the others are kept.

    Attributes:
        bit: which bit of an example's number decides.
        side: what it is in those that are changed.
        changed: for each example whether it is changed.
    """

    bit: int
    side: int
    changed: Tensor

    def other(self) -> Split:
        """Return the other side."""
        return Split(self.bit, 1 - self.side, ~self.changed)


def splits_of(size: int) -> list[Split]:
    """Return both sides of each bit: of any two examples each is changed in one that keeps the other.

    >>> for split in splits_of(3):
    ...     print(split.bit, split.side, split.changed.int().tolist())
    0 0 [1, 0, 1]
    0 1 [0, 1, 0]
    1 0 [1, 1, 0]
    1 1 [0, 0, 1]
    """
    numbers = torch.arange(size)
    bits = range(max(size - 1, 0).bit_length())
    return [Split(bit, side, (numbers >> bit) & 1 == side) for bit in bits for side in (0, 1)]
