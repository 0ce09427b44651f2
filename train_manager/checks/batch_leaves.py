"""A batch taken apart into its leaves, tensors and lists, and put together again with others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

Path = tuple[Any, ...]
"""The keys, positions and attributes that lead to a leaf."""

ENTRIES = (str, int, float, bytes)
"""The types that a list with an entry for each example may hold beside tensors."""


def leaves_of(
    value: Any, path: Path = (), *, is_leaf: Callable[[Any], bool] = lambda value: False
) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a value with their paths: tensors, packed sequences, and lists of numbers or words.

    Values inside it for which ``is_leaf`` returns True are leaves too.

    >>> import torch
    >>> [name_of(path) for path, _ in leaves_of({"x": torch.ones(2), "pair": (torch.ones(2), [3, 4])})]
    ['x', 'pair.0', 'pair.1']
    """
    # `path and`: the batch itself may be a list as long as it has examples, and is not a leaf.
    if isinstance(value, Tensor | PackedSequence) or _is_column(value) or (path and is_leaf(value)):
        yield path, value
    else:
        for key, inner in _parts(value):
            yield from leaves_of(inner, (*path, key), is_leaf=is_leaf)


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


def name_of(path: Path) -> str:
    """Return a path as messages show it."""
    return ".".join(map(str, path))


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, ENTRIES) for one in value)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a container; empty for any other object, and for a module."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, type | nn.Module) or callable(value):
        return []
    attributes = getattr(value, "__dict__", {})
    # An object of another class is a container only if there is a tensor or a list in it.
    holds = is_dataclass(value) or any(True for inner in attributes.values() if next(leaves_of(inner), None))
    return list(attributes.items()) if holds else []


def _with_parts(value: Any, parts: Mapping[Any, Any]) -> Any:
    if isinstance(value, MutableMapping):
        new = copy.copy(value)  # not by the constructor, which in a subclass may take other arguments than dict's
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
        object.__setattr__(new, name, inner)  # setattr() fails on a frozen dataclass
    return new
