"""Where the examples lie in what a model returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from train_manager.diagnosis.batch_leaves import Entry, Path, as_entries, leaves_of

TRIES: Final = 8
"""So many smaller batches are tried: some models take only some sizes."""

Outputs = Mapping[Path, Tensor]


class Rows(NamedTuple):
    """Each index along an axis is of one example.

    Attributes:
        axis: the axis.
        numbers: the number of the example of each index.
    """

    axis: int
    numbers: Tensor

    def mask(self, tensor: Tensor, examples: Tensor) -> Tensor:
        """Return a mask, in a shape that goes with the tensor, of what is of some examples."""
        shape = [1] * tensor.dim()
        shape[self.axis] = -1
        return examples[self.numbers].to(tensor.device).view(shape)


class Whole(NamedTuple):
    """All of a leaf is of one example: it is an entry of a list."""

    number: int

    def mask(self, tensor: Tensor, examples: Tensor) -> Tensor:
        """Return whether it is of one of some examples."""
        return examples[self.number].to(tensor.device).view([1] * tensor.dim())


class Mixed(NamedTuple):
    """The examples lie in it in a way that is not known; no element may depend on both sides of a bit."""


Place = Rows | Whole | Mixed


@final
class Places:
    """Where the examples lie in each leaf of the outputs.

    Args:
        by_path: the places; a leaf that is not in it belongs to no example.
        none: names of those leaves.
    """

    def __init__(self, by_path: Mapping[Path, Place], none: list[Path]) -> None:
        self.by_path = by_path
        self.none = none


def outputs_of(value: Any) -> dict[Path, Tensor]:
    """Return the tensors that a model has returned; a packed sequence gives one for each example."""
    return dict(_outputs(value))


def _outputs(value: Any) -> Iterator[tuple[Path, Tensor]]:
    for path, leaf in leaves_of(value):
        if isinstance(leaf, PackedSequence):
            yield from (((*path, Entry(number)), entry) for number, entry in enumerate(as_entries(leaf)))
        elif isinstance(leaf, Tensor):
            yield path, leaf.to_dense() if leaf.layout != torch.strided else leaf


def smaller_sizes(size: int) -> list[int]:
    """Return the sizes of smaller batches to try, the best first; one example alone is stretched to any size.

    >>> smaller_sizes(12), smaller_sizes(2)
    ([11, 10, 9, 6, 4, 3, 2], [1])
    """
    less = [size - fewer for fewer in (1, 2, 3)]
    divisors = [size // factor for factor in range(2, size + 1) if size % factor == 0]
    return [one for one in dict.fromkeys([*less, *divisors]) if one > 1 or size - one == 1][:TRIES]


def places_by_size(base: Outputs, fewer: Outputs, size: int, count: int, batch_axis: int) -> Places:
    """Return the places, from the outputs for fewer examples."""
    lists = _lists_that_shrank(base, fewer, size, count)
    places, none = {}, []
    for path, tensor in base.items():
        place = _place(path, tensor, fewer, size, count, batch_axis, lists)
        if place is None:
            none.append(path)
        else:
            places[path] = place
    return Places(places, none)


def places_by_length(base: Outputs, size: int, batch_axis: int) -> Places:
    """Return the places of a model that takes one size only: an axis of the batch's length."""
    found = {path: _axis_of_length(tensor, size, batch_axis) for path, tensor in base.items()}
    places: dict[Path, Place] = {
        path: Rows(axis, torch.arange(size)) for path, axis in found.items() if axis is not None
    }
    return Places(places, [path for path, axis in found.items() if axis is None])


def _axis_of_length(tensor: Tensor, size: int, batch_axis: int) -> int | None:
    axes = [axis for axis, length in enumerate(tensor.shape) if length == size]
    return batch_axis if batch_axis in axes else next(iter(axes), None)


def _lists_that_shrank(base: Outputs, fewer: Outputs, size: int, count: int) -> set[Path]:
    return {
        path
        for path in _list_lengths(base)
        if (_list_lengths(base)[path], _list_lengths(fewer).get(path)) == (size, count)
    }


def _list_lengths(outputs: Outputs) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for path in outputs:
        for end, key in enumerate(path):
            if isinstance(key, Entry):
                found[path[:end]] = max(found.get(path[:end], 0), key.position + 1)
    return found


def _place(
    path: Path, tensor: Tensor, fewer: Outputs, size: int, count: int, batch_axis: int, lists: set[Path]
) -> Place | None:
    for end, key in enumerate(path):
        if path[:end] in lists:
            return Whole(key.position)
    other = fewer.get(path)
    if other is None or other.dim() != tensor.dim():
        return Mixed()
    if other.shape == tensor.shape:
        return None
    axes = [
        axis
        for axis, (more, less) in enumerate(zip(tensor.shape, other.shape, strict=True))
        if _shrank(more, less, size, count)
    ]
    if not axes:
        return Mixed()
    axis = batch_axis if batch_axis in axes else axes[0]
    return Rows(axis, torch.arange(size).repeat_interleave(tensor.shape[axis] // size))


def _shrank(more: int, less: int, size: int, count: int) -> bool:
    return less < more and more % size == 0 and less * size == more * count


def in_turn(places: Places, base: Outputs, new: Outputs, changed: Tensor) -> Places:
    """Return the places with the examples of a folded axis in turn, where a change fits that and not side by side.

    Args:
        places: the examples lie side by side along each axis.
        base: the outputs of the batch as it is.
        new: those of a changed one.
        changed: which examples were changed.
    """
    by_path = dict(places.by_path)
    for path, place in places.by_path.items():
        if isinstance(place, Rows) and len(place.numbers) > len(changed) and path in new:
            other = Rows(place.axis, torch.arange(len(changed)).repeat(len(place.numbers) // len(changed)))
            moved = (new[path] != base[path]).movedim(place.axis, 0).flatten(1).any(1).cpu()
            if bool((moved & ~changed[place.numbers]).any()) and not bool((moved & ~changed[other.numbers]).any()):
                by_path[path] = other
    return Places(by_path, places.none)
