"""Changes of half of the examples: noise, and the content of an example of the other half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import ENTRIES, Path, name_of
from train_manager.diagnosis.examples import Examples, Leaf, Values

SEED: Final = 20_011
"""Of the generator that all changes are drawn from; the global random states stay as they are."""

SCALES: Final = (1.0, 4.0)
"""How large the noise on an example is, in spreads of the leaf."""

MASK_VALUES: Final = 2
"""A tensor of floats with so many values, or less, is a mask, if there is another one beside it."""


class Change(NamedTuple):
    """A change of one half of the examples, while the others are kept.

    Attributes:
        bit: which bit of an example's number decides.
        side: what it is in those that are changed.
        changed: for each example whether it is changed.
        kind: what is done: "noise", "copies", or copies of one leaf; empty if that is not decided.
        values: the new values of all leaves.
    """

    bit: int
    side: int
    changed: Tensor
    kind: str = ""
    values: Values = {}

    def other(self) -> Change:
        """Return the other side, with nothing done to it yet."""
        return Change(self.bit, 1 - self.side, ~self.changed)


def splits_of(size: int) -> list[Change]:
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
    return [Change(bit, side, (numbers >> bit) & 1 == side) for bit in bits for side in (0, 1)]


@final
class Changes:
    """All changes of a batch; each is made when it is asked for.

    Args:
        examples: the batch.
        keep_layout: put noise on floats alone, if there are any, which keeps lengths, masks and padding.

    Attributes:
        kinds: which leaves each kind of change is of.
        splits: which examples are changed together.
        keeps_layout: whether noise is on floats alone.
    """

    def __init__(self, examples: Examples, *, keep_layout: bool = False) -> None:
        self._examples = examples
        self._generator = torch.Generator().manual_seed(SEED)
        leaves = examples.leaves
        floats = [path for path, leaf in leaves.items() if any(map(self._takes_noise, leaf.entries))]
        self.keeps_layout = keep_layout and bool(floats)
        self.kinds: dict[str, list[Path]] = {"noise": floats if self.keeps_layout else [*leaves], "copies": [*leaves]}
        if len(leaves) > 1:
            self.kinds |= {f"copies of {name_of(path)}": [path] for path in leaves}
        self.splits = splits_of(examples.size)

    def __len__(self) -> int:
        return len(self.kinds) * len(self.splits)

    def made(self) -> Iterator[Change | None]:
        """Yield all changes, and None for one that changes nothing."""
        return (self.make(kind, split) for kind in self.kinds for split in self.splits)

    def make(self, kind: str, split: Change) -> Change | None:
        """Return a change, or None if it changes nothing."""
        source = self._source(split)
        values = dict(self._examples.values)
        for path in self.kinds[kind]:
            leaf = self._examples.leaves[path]
            values[path] = self._noise(leaf, split.changed) if kind == "noise" else leaf.take(source)
        is_another = any(not _are_same(values[path], one) for path, one in self._examples.values.items())
        return split._replace(kind=kind, values=values) if is_another else None

    def make_any(self, split: Change, kind: str = "noise") -> Change | None:
        """Return a change of one kind, or of another one if that changes nothing."""
        made = (self.make(one, split) for one in [kind, *self.kinds])
        return next((change for change in made if change is not None), None)

    def of_others_too(self, change: Change, split: Change) -> Change | None:
        """Return a change of the same kind of other examples; those of both are changed as they were."""
        made = self.make(change.kind, split)
        if made is None:
            return None
        both = change.changed & split.changed
        return made._replace(values=self._examples.mixed(change.values, made.values, both))

    def _source(self, split: Change) -> Tensor:
        """Return for each example the one whose content it gets: a kept one has its own."""
        numbers = torch.arange(len(split.changed))
        kept = numbers[~split.changed]
        drawn = kept[torch.randint(len(kept), (len(numbers),), generator=self._generator)]
        return torch.where(split.changed, drawn, numbers)

    def _noise(self, leaf: Leaf, changed: Tensor) -> Any:
        scales = torch.tensor(SCALES)[torch.randint(len(SCALES), (len(changed),), generator=self._generator)]
        if leaf.axis is not None:
            noisy = self._noisy(leaf.value, leaf.along(scales))
        else:
            noisy = [self._noisy(*pair) for pair in zip(leaf.value, scales, strict=True)]
        return leaf.mixed(noisy, leaf.value, changed)

    def _takes_noise(self, value: Any) -> bool:
        """Return whether noise leaves what kind of tensor it is; what is alone in a batch is not a mask."""
        if not isinstance(value, Tensor) or not value.numel():
            return False
        if value.is_complex():
            return True
        is_mask = len(self._examples.leaves) > 1 and value.numel() > MASK_VALUES >= value.unique().numel()
        return value.is_floating_point() and bool(value.isfinite().all()) and not is_mask

    def _noisy(self, value: Any, scale: Tensor) -> Any:
        if isinstance(value, Tensor) and _are_tokens(value):
            tokens = value[value != 0]  # zeros stay, since they pad
            drawn = torch.randint(len(tokens), tuple(value.shape), generator=self._generator)
            return torch.where(value != 0, tokens[drawn.to(value.device)], value)
        if not self._takes_noise(value):
            return value
        drawn = torch.randn(value.shape, generator=self._generator)
        if value.is_complex():
            drawn = torch.complex(drawn, torch.randn(value.shape, generator=self._generator))
        spread = value.abs().float().std() if value.numel() > 1 else value.abs().float().mean()
        return value + (drawn.to(value.device) * scale * (spread + 1e-3)).to(value.dtype)


def _are_tokens(tensor: Tensor) -> bool:
    is_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return is_whole and bool(tensor.any())


def _are_same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_are_same, first, second))
    return first is second or (isinstance(first, ENTRIES) and bool(first == second))
