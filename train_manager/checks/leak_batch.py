"""The examples of a batch, and changes of half of them while the others are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from train_manager.checks.batch_leaves import (
    ENTRIES,
    Path,
    copied,
    is_plain_list,
    leaves_of,
    name_of,
    put_together,
)
from train_manager.telling.errors import InputError, did_you_mean, near

SEED: Final = 20_011
"""The seed of the generator from which all changes are drawn; the global random states stay as they are."""

SCALES: Final = (1.0, 4.0)
"""The sizes of the noise on an example, in standard deviations of the leaf: one of them is drawn for each example."""

MASK_VALUES: Final = 2
"""The most distinct values of a float tensor that counts as a mask, if the batch has another tensor."""

KINDS: Final = ("noise", "copies")
"""What changed examples get: noise, or the content of an example of the other half, in all leaves at once."""

Values = Mapping[Path, Any]
"""The leaves of a batch that hold its examples: tensors, and lists with an entry for each."""


# ---- the examples of a batch -----------------------------------------------------------------------------------------


class ExampleAxis(NamedTuple):
    """Where the examples lie in a tensor."""

    axis: int | None  # the axis whose indexes belong to one example each; None: the whole tensor belongs to one
    numbers: Tensor  # for each index of that axis the number of its example

    def rows(self, tensor: Tensor) -> Tensor:
        """Return the tensor with a row for each of the numbers; a row has at least one axis of its own."""
        return (tensor[None] if self.axis is None else tensor.movedim(self.axis, 0)).unsqueeze(-1)


class Leaf(NamedTuple):
    """A leaf of a batch that holds its examples."""

    value: Any  # a tensor, or a list with an entry for each example
    axis: int | None  # the axis of the tensor along which the examples lie; None: a list
    wrap: Callable[[Any], Any]  # turns such a value into the type of the batch, such as a PackedSequence

    def take(self, numbers: Tensor) -> Any:
        """Return the examples of these numbers."""
        if self.axis is None:
            return [self.value[number] for number in numbers.tolist()]
        return self.value.index_select(self.axis, numbers.to(self.value.device))

    def mixed(self, value: Any, chosen: Tensor) -> Any:
        """Return a leaf with another value for the chosen examples, and its own for the rest."""
        if self.axis is None:
            entries = zip(value, self.value, chosen.tolist(), strict=True)
            return [one if take else own for one, own, take in entries]
        return torch.where(self.along(chosen), value, self.value)

    def along(self, of_examples: Tensor) -> Tensor:
        """Return a tensor of one number per example in a shape that broadcasts along the examples of the leaf."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.value.dim())]
        return of_examples.to(self.value.device).view(shape)


@final
class ExampleBatch:
    """A batch as a model takes it, with its examples.

    Args:
        batch: the batch.
        batch_axis: the axis along which its examples lie.
        shared: names, or positions, of leaves that belong to no example.

    Attributes:
        size: the number of examples.
        leaves: the leaves that hold them.
        values: the values of these leaves.
        left: the paths of other tensors, which are never changed.
    """

    def __init__(self, batch: Any, batch_axis: int = 0, shared: Collection[str | int] = ()) -> None:
        self._batch, self.batch_axis = batch, batch_axis
        # The most frequent length along the batch axis is the number of examples: a mask or a table may have another.
        votes = Counter(_votes(batch, batch_axis, shared))
        self.size = votes.most_common(1)[0][0] if votes else 0
        self._all = dict(leaves_of(batch, is_leaf=lambda value: is_plain_list(value) and len(value) == self.size))
        _require_parts(shared, [name_of(path) for path in self._all])
        own = {path: value for path, value in self._all.items() if not _is_shared(path, shared)}
        found = {path: _leaf(value, self.size, batch_axis) for path, value in own.items()}
        self.leaves: dict[Path, Leaf] = {path: leaf for path, leaf in found.items() if leaf is not None}
        self.values: Values = {path: leaf.value for path, leaf in self.leaves.items()}
        self.left = [path for path in own.keys() - self.leaves.keys() if isinstance(own[path], Tensor)]

    def first(self, count: int) -> dict[Path, Any]:
        """Return the values of the first examples only."""
        return {path: leaf.take(torch.arange(count)) for path, leaf in self.leaves.items()}

    def with_values(self, values: Values) -> Any:
        """Return a batch with the given values of its examples, and with copies of its other tensors."""
        copies = {path: copied(value) for path, value in self._all.items() if path not in values}
        return put_together(self._batch, copies | {path: self.leaves[path].wrap(one) for path, one in values.items()})

    def axis_in(self, path: Path) -> ExampleAxis:
        """Return where the examples lie in a tensor of the values: in a leaf, or in an entry of a list."""
        of = next(one for one in self.leaves if path[: len(one)] == one)
        axis = self.leaves[of].axis
        return ExampleAxis(axis, torch.tensor([path[len(of)]]) if axis is None else torch.arange(self.size))


def _require_parts(shared: Collection[str | int], names: list[str]) -> None:
    """Refuse names in ``shared`` that the batch does not have."""
    # A misspelt name would leave a shared tensor among those that are changed, where it looks like a leak.
    for one in shared:
        if not any(_is_shared((name,), [one]) for name in names):
            cure = f"{did_you_mean(near(str(one), names))} its parts are {', '.join(map(repr, names))}".strip()
            raise InputError(f"shared names {one!r}, but the batch has no such part", name="shared", cure=cure)


def _is_shared(path: Path, shared: Collection[str | int]) -> bool:
    # The dots at the ends keep "mask" from matching "masked".
    return any(f"{name_of(path)}.".startswith(f"{one}.") for one in shared)


def _votes(batch: Any, batch_axis: int, shared: Collection[str | int]) -> Iterator[int]:
    """Yield a number of examples for each tensor and list of a batch."""
    for path, value in leaves_of(batch, is_leaf=is_plain_list):
        if _is_shared(path, shared):
            continue
        if isinstance(value, PackedSequence):
            yield int(value.batch_sizes[0])
        elif not isinstance(value, Tensor):
            yield from _votes_of_list(value, batch_axis)
        elif value.dim() > batch_axis:
            yield value.shape[batch_axis]


def _votes_of_list(entries: list[Any], batch_axis: int) -> list[int]:
    """Return how many examples a list may hold: one for each entry, or as many as each of its tensors has."""
    shapes = [one.shape for one in entries if isinstance(one, Tensor) and one.dim() > batch_axis]
    lengths = {shape[batch_axis] for shape in shapes}
    # Not all entries are tensors of one length along the batch axis: each entry is an example.
    if len(shapes) < len(entries) or len(lengths) != 1:
        return [len(entries)]
    # Entries of the same shape may be examples, or each hold a row of every example: both get a vote, and the first one
    # wins a tie.
    return [len(entries), *lengths] if len(set(shapes)) == 1 else [*lengths, len(entries)]


def _leaf(value: Any, size: int, batch_axis: int) -> Leaf | None:
    if isinstance(value, PackedSequence):
        # pack_sequence needs no sorting here: a changed batch may have its longest sequence anywhere.
        packed_again = partial(pack_sequence, enforce_sorted=False)
        return Leaf(list(unpack_sequence(value)), None, packed_again) if int(value.batch_sizes[0]) == size else None
    if isinstance(value, Tensor):
        axis = _axis_of(value, size, batch_axis)
        return None if axis is None else Leaf(value, axis, lambda tensor: tensor)
    return Leaf(list(value), None, type(value)) if len(value) == size else None


def _axis_of(tensor: Tensor, size: int, batch_axis: int) -> int | None:
    """Return the batch axis if it has a length of ``size``, or the only axis that has; otherwise None."""
    axes = [] if is_triangle(tensor) else [axis for axis, length in enumerate(tensor.shape) if length == size]
    return batch_axis if batch_axis in axes else axes[0] if len(axes) == 1 else None


def is_triangle(tensor: Tensor) -> bool:
    """Return whether a tensor is a mask by which each step of a sequence sees those before it, or those after it.

    >>> is_triangle(torch.ones(4, 4).tril()), is_triangle(torch.ones(4, 4))
    (True, False)
    """
    if tensor.dim() != 2 or len(tensor) != tensor.shape[1] or len(tensor) < 3:
        return False
    # All elements above the diagonal are equal, all below it too, and the two values differ.
    above = torch.ones_like(tensor, dtype=torch.bool).triu(1)
    first, second = tensor[above].unique(), tensor[above.T].unique()
    return len(first) == len(second) == 1 and bool(first != second)


# ---- changes of half of the examples ---------------------------------------------------------------------------------


class Change(NamedTuple):
    """A change of some examples, while the others are kept."""

    half: int  # the position of the changed examples in the halves; -1: another half
    changed: Tensor  # for each example whether it is changed
    kind: str  # one of KINDS
    values: Values  # the new values of all leaves


def halves_of(size: int) -> list[Tensor]:
    """Return both halves by each bit, such that of any two examples each is changed in a half that keeps the other.

    The complement of the half at a position is at ``position ^ 1``.

    >>> [half.int().tolist() for half in halves_of(3)]
    [[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    numbers = torch.arange(size)
    # Two different numbers differ in at least one bit, so log2(size) splits separate every pair of examples.
    bits = range(max(size - 1, 0).bit_length())
    return [(numbers >> bit) & 1 == side for bit in bits for side in (0, 1)]


@final
class Changes:
    """All changes of a batch; each is made when it is requested.

    Args:
        batch: the batch.

    Attributes:
        halves: the examples that are changed together.
    """

    def __init__(self, batch: ExampleBatch) -> None:
        self._batch = batch
        self._generator = torch.Generator().manual_seed(SEED)
        self.halves = halves_of(batch.size)

    def __len__(self) -> int:
        return len(KINDS) * len(self.halves)

    def made(self) -> Iterator[Change | None]:
        """Yield all changes, and None for one that changes nothing."""
        return (self.make(kind, half, at) for kind in KINDS for at, half in enumerate(self.halves))

    def make(self, kind: str, changed: Tensor, half: int = -1) -> Change | None:
        """Return a change, or None if it changes nothing."""
        source, leaves = self._source(changed), self._batch.leaves
        values = {
            path: leaf.mixed(self._noisy(leaf), changed) if kind == "noise" else leaf.take(source)
            for path, leaf in leaves.items()
        }
        is_another = any(not _are_same(values[path], leaf.value) for path, leaf in leaves.items())
        return Change(half, changed, kind, values) if is_another else None

    def make_any(self, changed: Tensor, kind: str, half: int = -1) -> Change | None:
        """Return a change of the given kind, or of another kind if the given one changes nothing."""
        made = (self.make(one, changed, half) for one in dict.fromkeys([kind, *KINDS]))
        return next((change for change in made if change is not None), None)

    def _source(self, changed: Tensor) -> Tensor:
        """Return for each example the number of the one whose content it gets; a kept example keeps its own."""
        numbers = torch.arange(len(changed))
        kept = numbers[~changed]
        drawn = kept[torch.randint(len(kept), (len(numbers),), generator=self._generator)]
        return torch.where(changed, drawn, numbers)

    def _noisy(self, leaf: Leaf) -> Any:
        scales = torch.tensor(SCALES)[torch.randint(len(SCALES), (self._batch.size,), generator=self._generator)]
        if leaf.axis is not None:
            return self._with_noise(leaf.value, leaf.along(scales))
        return [self._with_noise(*pair) for pair in zip(leaf.value, scales, strict=True)]

    def _with_noise(self, value: Any, scale: Tensor) -> Any:
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

    def _takes_noise(self, value: Any) -> bool:
        """Return whether a tensor may get noise: a mask must not, as it would be a mask no longer."""
        if not isinstance(value, Tensor) or not value.numel():
            return False
        if value.is_complex():
            return True
        is_mask = len(self._batch.leaves) > 1 and value.numel() > MASK_VALUES >= value.unique().numel()
        return value.is_floating_point() and bool(value.isfinite().all()) and not is_mask


def _are_tokens(tensor: Tensor) -> bool:
    is_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return is_whole and bool(tensor.any())


def _are_same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_are_same, first, second))
    return first is second or (isinstance(first, ENTRIES) and bool(first == second))
