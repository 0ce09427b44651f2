"""Changes of the examples of one side of a split: noise, and the content of an example of the other side."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leaves import ENTRIES, Path
from train_manager.diagnosis.examples import Examples, Leaf
from train_manager.diagnosis.splits import Split, splits_of

SEED: Final = 20_011
"""Of the generator that all changes are drawn from; the global random states stay as they are."""

SCALES: Final = (1.0, 4.0)
"""How large the noise on an example is, in spreads of the leaf."""

MASK_VALUES: Final = 2
"""A tensor of floats with so many values, or less, is a mask, if there is another one beside it."""


class Change(NamedTuple):
    """A change of one side of a split.

    Attributes:
        kind: what is done: "noise", "noise on floats", "copies", or copies of one leaf.
        split: which examples it is done to.
        values: the new values of all leaves.
    """

    kind: str
    split: Split
    values: dict[Path, Any]


@final
class Changes:
    """All changes of a batch; each is made when it is asked for.

    Args:
        examples: the batch.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._generator = torch.Generator().manual_seed(SEED)
        leaves = examples.leaves
        self.kinds: dict[str, list[Path]] = {"noise": [*leaves], "copies": [*leaves]}
        if len(leaves) > 1:
            self.kinds |= {f"copies of {'.'.join(map(str, path))}": [path] for path in leaves}
        self.splits = splits_of(examples.size)

    def keep_layout(self) -> str:
        """Return a kind of change that keeps lengths, masks and padding, and add it if there is none yet.

        Returns:
            Its name; empty if there are no floats.
        """
        leaves = self._examples.leaves
        floats = [path for path, leaf in leaves.items() if isinstance(leaf.value, Tensor) and _is_number(leaf.value)]
        if len(floats) == len(leaves):
            return "noise"
        if floats:
            self.kinds["noise on floats"] = floats
        return "noise on floats" if floats else ""

    def __len__(self) -> int:
        return len(self.kinds) * len(self.splits)

    def make(self, kind: str, split: Split) -> Change | None:
        """Return a change, or None if it changes nothing."""
        source = self._source(split)
        values = self._examples.own_values()
        for path in self.kinds[kind]:
            leaf = self._examples.leaves[path]
            values[path] = self._noise(leaf, split.changed) if kind.startswith("noise") else leaf.take(source)
        return Change(kind, split, values) if self._is_another(values) else None

    def of_others_too(self, change: Change, split: Split) -> Change | None:
        """Return a change of the same kind of other examples; those of both are changed as they were."""
        made = self.make(change.kind, split)
        if made is None:
            return None
        both = change.split.changed & split.changed
        return made._replace(values=self._examples.mixed(change.values, made.values, both))

    def _source(self, split: Split) -> Tensor:
        """Return for each example the one whose content it gets: a kept one has its own."""
        numbers = torch.arange(len(split.changed))
        kept = numbers[~split.changed]
        drawn = kept[torch.randint(len(kept), (len(numbers),), generator=self._generator)]
        return torch.where(split.changed, drawn, numbers)

    def _is_another(self, values: dict[Path, Any]) -> bool:
        return any(not _are_same(values[path], leaf.value) for path, leaf in self._examples.leaves.items())

    def _noise(self, leaf: Leaf, changed: Tensor) -> Any:
        scales = torch.tensor(SCALES)[torch.randint(len(SCALES), (len(changed),), generator=self._generator)]
        if leaf.axis is not None:
            noisy = self._noisy(leaf.value, scales.view(leaf.mask(changed).shape))
            return torch.where(leaf.mask(changed), noisy, leaf.value)
        return [
            self._noisy(value, scale) if is_changed and isinstance(value, Tensor) else value
            for value, is_changed, scale in zip(leaf.value, changed.tolist(), scales, strict=True)
        ]

    def _noisy(self, tensor: Tensor, scale: Tensor) -> Tensor:
        if _is_mask(tensor, is_alone=len(self._examples.leaves) == 1):
            return tensor
        if not _is_number(tensor):
            return self._other_tokens(tensor)
        drawn = torch.randn(tensor.shape, generator=self._generator, dtype=torch.float32)
        if tensor.is_complex():
            drawn = torch.complex(drawn, torch.randn(tensor.shape, generator=self._generator))
        spread = tensor.abs().float().std() if tensor.numel() > 1 else tensor.abs().float().mean()
        return tensor + (drawn * scale).to(tensor.device).mul(spread + 1e-3).to(tensor.dtype)

    def _other_tokens(self, tensor: Tensor) -> Tensor:
        """Return other ones of the tokens in a batch; zeros stay, since they pad."""
        tokens = tensor[tensor != 0]
        drawn = tokens[torch.randint(len(tokens), tuple(tensor.shape), generator=self._generator).to(tensor.device)]
        return torch.where(tensor != 0, drawn, tensor)


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_mask(tensor: Tensor, *, is_alone: bool) -> bool:
    """Return whether noise would make another kind of tensor of it; what is alone in a batch is not a mask."""
    if tensor.dtype == torch.bool or not tensor.numel():
        return True
    if not tensor.is_floating_point():
        return not (tensor.is_complex() or bool(tensor.any()))
    if not bool(tensor.isfinite().all()):
        return True
    return not is_alone and tensor.numel() > MASK_VALUES and tensor.unique().numel() <= MASK_VALUES


def _are_same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_are_same, first, second))
    return first is second or (isinstance(first, ENTRIES) and bool(first == second))
