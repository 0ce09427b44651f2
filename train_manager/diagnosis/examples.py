"""The examples of a batch: which of its leaves hold them, and where; chosen, exchanged, and handed to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from train_manager.diagnosis.batch_leaves import (
    Entry,
    Path,
    as_entries,
    copied,
    leaves_of,
    lists_in,
    name_of,
    packed_again,
    put_together,
)
from train_manager.telling.errors import InputError, did_you_mean, near


class Leaf(NamedTuple):
    """A leaf of a batch that holds its examples.

    Attributes:
        value: a tensor, or a list with an entry for each example.
        axis: the axis of the tensor along which they lie; None in a list.
        wrap: makes of it what the model takes.
    """

    value: Any
    axis: int | None
    wrap: Callable[[Any], Any]

    def take(self, numbers: Tensor) -> Any:
        """Return the examples of these numbers."""
        if self.axis is None:
            return [self.value[number] for number in numbers.tolist()]
        return self.value.index_select(self.axis, numbers.to(self.value.device))

    def mixed(self, value: Any, other: Any, chosen: Tensor) -> Any:
        """Return a value of this leaf for chosen examples, and another for the rest."""
        if self.axis is None:
            return [one if take else rest for one, rest, take in zip(value, other, chosen.tolist(), strict=True)]
        return torch.where(self.mask(chosen), value, other)

    def mask(self, chosen: Tensor) -> Tensor:
        """Return a mask of examples in a shape that goes with the tensor."""
        assert self.axis is not None, "a list has no shape"
        shape = [1] * self.value.dim()
        shape[self.axis] = -1
        return chosen.to(self.value.device).view(shape)


@final
class Examples:
    """A batch as a model takes it.

    Args:
        batch: the batch.
        batch_axis: the axis along which its examples lie.
        shared: names, or positions, of leaves that belong to no example.

    Attributes:
        size: how many they are.
        leaves: those that hold them.
        left: the paths of other leaves, which are left as they are.
    """

    def __init__(self, batch: Any, batch_axis: int = 0, shared: Collection[str | int] = ()) -> None:
        self.batch = batch
        self.size = _size_of(batch, batch_axis, shared)
        self._all = dict(leaves_of(batch, lists_of=self.size))
        _require_parts(shared, self._all)
        found = {
            path: _leaf(value, self.size, batch_axis)
            for path, value in self._all.items()
            if not _is_shared(path, shared)
        }
        self.leaves: dict[Path, Leaf] = {path: leaf for path, leaf in found.items() if leaf is not None}
        self.left = [path for path, leaf in found.items() if leaf is None and isinstance(self._all[path], Tensor)]

    def first(self, count: int) -> Any:
        """Return a batch of the first examples only."""
        numbers = torch.arange(count)
        return self.with_values({path: copied(leaf.take(numbers)) for path, leaf in self.leaves.items()})

    def mixed(self, values: Mapping[Path, Any], others: Mapping[Path, Any], chosen: Tensor) -> dict[Path, Any]:
        """Return the values of chosen examples, and other values of the rest."""
        return {path: leaf.mixed(values[path], others[path], chosen) for path, leaf in self.leaves.items()}

    def own_values(self) -> dict[Path, Any]:
        """Return the values of the batch as it is."""
        return {path: leaf.value for path, leaf in self.leaves.items()}

    def with_values(self, values: Mapping[Path, Any]) -> Any:
        """Return a batch with other examples, as they are given; all else in it is copied."""
        copies = {path: copied(value) for path, value in self._all.items() if path not in values}
        taken = {path: self.leaves[path].wrap(value) for path, value in values.items()}
        return put_together(self.batch, {**copies, **taken})


def _require_parts(shared: Collection[str | int], paths: Iterable[Path]) -> None:
    """Refuse names of what the batch does not have: a misspelt one would be changed like the others."""
    names = [name_of(path) for path in paths]
    for one in shared:
        if not any(_is_shared(path, [one]) for path in paths):
            cure = f"{did_you_mean(near(str(one), names))} its parts are {', '.join(map(repr, names))}".strip()
            raise InputError(f"shared names {one!r}, but the batch has no such part", name="shared", cure=cure)


def _is_shared(path: Path, shared: Collection[str | int]) -> bool:
    name = name_of(path)
    return any(name == str(one) or name.startswith(f"{one}.") for one in shared)


def _size_of(batch: Any, batch_axis: int, shared: Collection[str | int]) -> int:
    """Return how many examples a batch has: what most of its tensors and lists say."""
    votes: Counter[int] = Counter()
    for path, value in leaves_of(batch):
        if _is_shared(path, shared):
            continue
        if isinstance(value, PackedSequence):
            votes[int(value.batch_sizes[0])] += 1
        elif (
            isinstance(value, Tensor)
            and value.dim() > batch_axis
            and not any(isinstance(key, Entry) for key in path[1:])
        ):
            votes[value.shape[batch_axis]] += 1
    for entries in lists_in(batch):
        votes.update(_votes_of(entries, batch_axis))
    return votes.most_common(1)[0][0] if votes else 0


def _votes_of(entries: Sequence[Any], batch_axis: int) -> list[int]:
    """Return how many examples a list may hold: one for each entry, or as many as each of its tensors has."""
    tensors = [one for one in entries if isinstance(one, Tensor) and one.dim() > batch_axis]
    lengths = {one.shape[batch_axis] for one in tensors}
    if len(tensors) < len(entries) or len(lengths) != 1:
        return [len(entries)]
    both = [len(entries), *lengths]
    return both if len({one.shape for one in tensors}) == 1 else both[::-1]


def _leaf(value: Any, size: int, batch_axis: int) -> Leaf | None:
    if isinstance(value, PackedSequence):
        return Leaf(as_entries(value), None, packed_again) if int(value.batch_sizes[0]) == size else None
    if isinstance(value, Tensor):
        axis = _axis_of(value, size, batch_axis)
        return None if axis is None else Leaf(value, axis, _as_it_is)
    return Leaf(list(value), None, type(value)) if len(value) == size else None


def _axis_of(tensor: Tensor, size: int, batch_axis: int) -> int | None:
    """Return the batch axis if it has the right size; else the only axis that has; None for a mask of a sequence."""
    if is_triangle(tensor):
        return None
    if tensor.dim() > batch_axis and tensor.shape[batch_axis] == size:
        return batch_axis
    axes = [axis for axis, length in enumerate(tensor.shape) if length == size]
    return axes[0] if len(axes) == 1 else None


def is_triangle(tensor: Tensor) -> bool:
    """Return whether a tensor is a mask by which each step of a sequence sees those before it, or those after it.

    >>> is_triangle(torch.ones(4, 4).tril()), is_triangle(torch.ones(4, 4))
    (True, False)
    """
    if tensor.dim() != 2 or len(tensor) != tensor.shape[1] or len(tensor) < 3:
        return False
    above = torch.ones_like(tensor, dtype=torch.bool).triu(1)
    first, second = tensor[above].unique(), tensor[above.T].unique()
    return len(first) == len(second) == 1 and bool(first != second)


def _as_it_is(value: Any) -> Any:
    return value
