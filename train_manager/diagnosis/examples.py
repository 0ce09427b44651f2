"""The examples of a batch: the leaves that hold them, and their axes; to be chosen, exchanged and given to a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from train_manager.diagnosis.batch_leaves import Path, copied, is_plain_list, leaves_of, name_of, put_together
from train_manager.telling.errors import InputError, did_you_mean, near

Values = Mapping[Path, Any]
"""The leaves of a batch that hold its examples: tensors, and lists with an entry for each."""


class Place(NamedTuple):
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

    @property
    def entries(self) -> list[Any]:
        """The entries of the list, or the tensor as the only one."""
        return [self.value] if self.axis is not None else self.value

    def take(self, numbers: Tensor) -> Any:
        """Return the examples of these numbers."""
        if self.axis is None:
            return [self.value[number] for number in numbers.tolist()]
        return self.value.index_select(self.axis, numbers.to(self.value.device))

    def mixed(self, value: Any, other: Any, chosen: Tensor) -> Any:
        """Return a leaf with one value for the chosen examples, and another value for the rest."""
        if self.axis is None:
            return [one if take else rest for one, rest, take in zip(value, other, chosen.tolist(), strict=True)]
        return torch.where(self.along(chosen), value, other)

    def along(self, of_examples: Tensor) -> Tensor:
        """Return a tensor of one number per example in a shape that broadcasts along the examples of the leaf."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.value.dim())]
        return of_examples.to(self.value.device).view(shape)


@final
class Examples:
    """A batch as a model takes it.

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

    def mixed(self, values: Values, others: Values, chosen: Tensor) -> dict[Path, Any]:
        """Return the values of chosen examples, and other values of the rest."""
        return {path: leaf.mixed(values[path], others[path], chosen) for path, leaf in self.leaves.items()}

    def first(self, count: int) -> dict[Path, Any]:
        """Return the values of the first examples only."""
        return {path: leaf.take(torch.arange(count)) for path, leaf in self.leaves.items()}

    def batch_of(self, values: Values) -> Any:
        """Return a batch with the given values of its examples, and with copies of its other tensors."""
        copies = {path: copied(value) for path, value in self._all.items() if path not in values}
        return put_together(self._batch, copies | {path: self.leaves[path].wrap(one) for path, one in values.items()})

    def place_in(self, path: Path) -> Place:
        """Return where the examples lie in a tensor of the values: in a leaf, or in an entry of a list."""
        of = next(one for one in self.leaves if path[: len(one)] == one)
        axis = self.leaves[of].axis
        return Place(axis, torch.tensor([path[len(of)]]) if axis is None else torch.arange(self.size))


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
