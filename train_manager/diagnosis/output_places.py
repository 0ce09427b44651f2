"""Where the examples lie in the outputs of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

from train_manager.diagnosis.batch_leaves import Path, leaves_of
from train_manager.diagnosis.examples import Place

TRIES: Final = 8
"""The most smaller batches that are tried: some models take only certain sizes."""

Outputs = Mapping[Path, Tensor]


class Places(NamedTuple):
    """Where the examples lie in each leaf of the outputs."""

    known: dict[Path, Place]  # leaves in which the places are known
    mixed: list[Path]  # leaves that depend on the batch size in another way
    none: list[Path]  # leaves that belong to no example, such as a loss


def outputs_of(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in the outputs of a model; a packed sequence gives one tensor for each example."""
    return dict(_outputs(value))


def _outputs(value: Any) -> Iterator[tuple[Path, Tensor]]:
    for path, leaf in leaves_of(value):
        if isinstance(leaf, PackedSequence):
            yield from (((*path, number), entry) for number, entry in enumerate(unpack_sequence(leaf)))
        elif isinstance(leaf, Tensor):
            yield path, leaf.to_dense() if leaf.layout != torch.strided else leaf


def smaller_sizes(size: int) -> list[int]:
    """Return the sizes of smaller batches to try, the best first.

    >>> smaller_sizes(12), smaller_sizes(2)
    ([11, 10, 9, 6, 4, 3, 2], [1])
    """
    # Divisors of the size suit models that split a batch. One example alone broadcasts to any size, so it is tried
    # only in place of two.
    less = [size - fewer for fewer in (1, 2, 3)]
    divisors = [size // factor for factor in range(2, size + 1) if size % factor == 0]
    return [one for one in dict.fromkeys([*less, *divisors]) if one > 1 or size - one == 1][:TRIES]


def places_of(base: Outputs, fewer: Outputs | None, size: int, count: int, batch_axis: int) -> Places:
    """Return the places of the examples, by a comparison with the outputs for the first ``count`` examples.

    Without such outputs, from a model that takes one size only, any axis as long as the batch counts as its axis.
    """
    places = Places({}, [], [])
    lengths, shorter = _lengths_of_lists(base), _lengths_of_lists(fewer or {})
    shrunk = {path for path, length in lengths.items() if (length, shorter.get(path)) == (size, count)}
    for path, tensor in base.items():
        # A list that became shorter with the batch has an entry for each example.
        entry = next((key for end, key in enumerate(path) if path[:end] in shrunk), None)
        other = tensor if fewer is None else fewer.get(path)
        if entry is not None:
            places.known[path] = Place(None, torch.tensor([entry]))
        elif other is None or other.dim() != tensor.dim():
            places.mixed.append(path)
        elif axes := [axis for axis in range(tensor.dim()) if _is_of_examples(axis, tensor, other, size, count)]:
            axis = batch_axis if batch_axis in axes else axes[0]
            places.known[path] = Place(axis, _numbers(tensor.movedim(axis, 0), other.movedim(axis, 0), size, count))
        else:
            (places.none if other.shape == tensor.shape else places.mixed).append(path)
    return places


def _is_of_examples(axis: int, tensor: Tensor, other: Tensor, size: int, count: int) -> bool:
    """Return whether an axis has shrunk like the batch; without a smaller batch, whether it has the batch's length."""
    # An axis may have several rows per example, as heads of attention: it shrinks by the same factor.
    more, less = tensor.shape[axis], other.shape[axis]
    return more == size if other is tensor else less < more and more % size == 0 and less * size == more * count


def _lengths_of_lists(outputs: Outputs) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for path in outputs:
        for end, key in enumerate(path):
            if isinstance(key, int):
                found[path[:end]] = max(found.get(path[:end], 0), key + 1)
    return found


def _numbers(rows: Tensor, fewer: Tensor, size: int, count: int) -> Tensor:
    """Return the number of the example of each row: 0 0 1 1 or 0 1 0 1, whichever agrees better with fewer examples."""
    times = len(rows) // size
    side_by_side, in_turn = torch.arange(size).repeat_interleave(times), torch.arange(size).repeat(times)
    if times == 1 or rows.shape[1:] != fewer.shape[1:]:
        return side_by_side
    equal = [int((rows[numbers < count] == fewer).sum()) for numbers in (side_by_side, in_turn)]
    return in_turn if equal[1] > equal[0] else side_by_side
