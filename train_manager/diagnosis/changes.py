"""Changes of half of the examples: noise, and the content of an example of the other half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import ENTRIES, Path, name_of
from train_manager.diagnosis.examples import Examples, Leaf, Values

SEED: Final = 20_011
"""The seed of the generator from which all changes are drawn; the global random states stay as they are."""

SCALES: Final = (1.0, 4.0)
"""The sizes of the noise on an example, in standard deviations of the leaf: one of them is drawn for each example."""

MASK_VALUES: Final = 2
"""The most distinct values of a float tensor that counts as a mask, if the batch has another tensor."""


class Change(NamedTuple):
    """A change of one half of the examples, while the others are kept."""

    bit: int  # the bit of an example's number that decides whether the example is changed
    side: int  # the value of that bit in the changed examples
    changed: Tensor  # for each example whether it is changed
    kind: str = ""  # "noise", "copies", or copies of one leaf; empty if that is not decided yet
    values: Values = {}  # the new values of all leaves

    def other(self) -> Change:
        """Return the change of the other half, without a kind yet."""
        return Change(self.bit, 1 - self.side, ~self.changed)


def splits_of(size: int) -> list[Change]:
    """Return both halves by each bit, such that of any two examples each is changed in a split that keeps the other.

    >>> for split in splits_of(3):
    ...     print(split.bit, split.side, split.changed.int().tolist())
    0 0 [1, 0, 1]
    0 1 [0, 1, 0]
    1 0 [1, 1, 0]
    1 1 [0, 0, 1]
    """
    numbers = torch.arange(size)
    # Two different numbers differ in at least one bit, so log2(size) splits separate every pair of examples.
    bits = range(max(size - 1, 0).bit_length())
    return [Change(bit, side, (numbers >> bit) & 1 == side) for bit in bits for side in (0, 1)]


@final
class Changes:
    """All changes of a batch; each is made when it is requested.

    Args:
        examples: the batch.
        keep_layout: put noise on floats alone, if there are any, which keeps lengths, masks and padding.
    """

    def __init__(self, examples: Examples, *, keep_layout: bool = False) -> None:
        self._examples = examples
        self._generator = torch.Generator().manual_seed(SEED)
        leaves = examples.leaves
        floats = [path for path, leaf in leaves.items() if any(map(self._takes_noise, leaf.entries))]
        self.keeps_layout = keep_layout and bool(floats)
        # The leaves that each kind of change is made to.
        self.kinds: dict[str, list[Path]] = {"noise": floats if self.keeps_layout else [*leaves], "copies": [*leaves]}
        # Copies of one leaf alone find a leak that appears only if leaves of different examples meet.
        if len(leaves) > 1:
            self.kinds |= {f"copies of {name_of(path)}": [path] for path in leaves}
        self.splits = splits_of(examples.size)  # the examples that are changed together

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
        """Return a change of the given kind, or of another kind if the given one changes nothing."""
        made = (self.make(one, split) for one in [kind, *self.kinds])
        return next((change for change in made if change is not None), None)

    def of_others_too(self, change: Change, split: Change) -> Change | None:
        """Return a change of the same kind by another split; examples in both get the values of the first change."""
        made = self.make(change.kind, split)
        if made is None:
            return None
        both = change.changed & split.changed
        return made._replace(values=self._examples.mixed(change.values, made.values, both))

    def _source(self, split: Change) -> Tensor:
        """Return for each example the number of the one whose content it gets; a kept example keeps its own."""
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
        """Return whether a tensor may get noise: a mask must not, as it would be a mask no longer."""
        if not isinstance(value, Tensor) or not value.numel():
            return False
        if value.is_complex():
            return True
        is_mask = len(self._examples.leaves) > 1 and value.numel() > MASK_VALUES >= value.unique().numel()
        return value.is_floating_point() and bool(value.isfinite().all()) and not is_mask

    def _noisy(self, value: Any, scale: Tensor) -> Any:
        if isinstance(value, Tensor) and _are_tokens(value):
            tokens = value[value != 0]  # zeros stay, because they are usually padding
            # Tokens are replaced by tokens of the same batch, which are in the vocabulary of the model.
            drawn = torch.randint(len(tokens), tuple(value.shape), generator=self._generator)
            return torch.where(value != 0, tokens[drawn.to(value.device)], value)
        if not self._takes_noise(value):
            return value
        drawn = torch.randn(value.shape, generator=self._generator)
        if value.is_complex():
            drawn = torch.complex(drawn, torch.randn(value.shape, generator=self._generator))
        spread = value.abs().float().std() if value.numel() > 1 else value.abs().float().mean()
        # 1e-3: a tensor of equal numbers has no spread, and must change all the same.
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
