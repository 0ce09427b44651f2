"""A batch taken apart into its leaves, tensors and lists, and put together again with others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import is_dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

Path = tuple[Any, ...]
"""The keys, positions and attributes that lead to a leaf."""

ENTRIES = (str, int, float, bytes)
"""What a list with an entry for each example may hold beside tensors."""


class Entry(NamedTuple):
    """A key of a path that is the position in a list."""

    position: int

    def __str__(self) -> str:
        return str(self.position)


def leaves_of(value: Any, path: Path = (), *, lists_of: int = 0) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a value with their paths: tensors, packed sequences, and lists of numbers or words.

    Lists of ``lists_of`` entries inside of the value are leaves too, whatever they hold.

    >>> import torch
    >>> [name_of(path) for path, _ in leaves_of({"x": torch.ones(2), "pair": (torch.ones(2), [3, 4])})]
    ['x', 'pair.0', 'pair.1']
    """
    is_list = bool(path) and lists_of > 0 and is_plain_list(value) and len(value) == lists_of
    if isinstance(value, Tensor | PackedSequence) or _is_column(value) or is_list:
        yield path, value
    else:
        for key, inner in _parts(value):
            yield from leaves_of(inner, (*path, key), lists_of=lists_of)


def lists_in(value: Any, path: Path = ()) -> Iterator[Sequence[Any]]:
    """Yield the lists inside of a value that may have an entry for each example."""
    if path and is_plain_list(value) and value:
        yield value
    elif not isinstance(value, Tensor | PackedSequence):
        for key, inner in _parts(value):
            yield from lists_in(inner, (*path, key))


def is_plain_list(value: Any) -> bool:
    """Return whether a value is a list or a tuple without names."""
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def put_together(value: Any, leaves: Mapping[Path, Any], path: Path = ()) -> Any:
    """Return a value with other leaves in place of its own; its containers are new ones.

    >>> put_together({"lengths": [3, 4], "name": None}, {("lengths",): [4, 3]})
    {'lengths': [4, 3], 'name': None}
    """
    if path in leaves:
        return leaves[path]
    new = {key: put_together(inner, leaves, (*path, key)) for key, inner in _parts(value)}
    return _with_parts(value, new) if new else value


def copied(value: Any) -> Any:
    """Return a value with copies of its tensors, in containers of its own."""
    return put_together(value, {path: leaf.clone() for path, leaf in leaves_of(value) if isinstance(leaf, Tensor)})


def as_entries(packed: PackedSequence) -> list[Tensor]:
    """Return the sequences of each example."""
    return list(unpack_sequence(packed))


def packed_again(entries: list[Tensor]) -> PackedSequence:
    """Return the sequences of each example as one packed sequence."""
    return pack_sequence(entries, enforce_sorted=False)


def name_of(path: Path) -> str:
    """Return a path as it is shown."""
    return ".".join(map(str, path))


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, ENTRIES) for one in value)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return what a container holds: nothing if it is none, or if it is a part of a model."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return [(Entry(position), inner) for position, inner in enumerate(value)]
    if isinstance(value, type | nn.Module) or callable(value):
        return []
    attributes = getattr(value, "__dict__", {})
    holds = is_dataclass(value) or any(True for inner in attributes.values() if next(leaves_of(inner), None))
    return list(attributes.items()) if holds else []


def _with_parts(value: Any, parts: Mapping[Any, Any]) -> Any:
    if isinstance(value, MutableMapping):
        new = copy.copy(value)  # the constructor of a subclass may take other arguments than dict
        new.update(parts)
        return new
    if isinstance(value, Mapping):
        return dict(parts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts.values())
    if isinstance(value, list | tuple):
        return type(value)(parts.values())
    new = copy.copy(value)
    for name, inner in parts.items():
        object.__setattr__(new, name, inner)  # also in a frozen dataclass
    return new
