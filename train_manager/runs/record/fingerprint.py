"""What data is made of, in a few numbers: to see later whether a run was given the same.

Data is only looked at: no method except ``len`` is called, no example is loaded, no random state moves. Of arrays and
lists in memory a bounded number of rows at even distances is hashed, so that it takes milliseconds for data of any
size. ``digest_of_batches`` of ``digests.py`` hashes all batches, for a caller that reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from train_manager.rebuilding.recorded import as_written
from train_manager.rebuilding.value_trees import RECORD
from train_manager.runs.record.digests import NUMBERS, ROWS, add, array_facts, class_name, is_array

DEEPEST: Final = 8  # levels of wrappers, such as a loader over a subset of a dataset

Fingerprint = dict[str, Any]

_SETTINGS: Final = ("batch_size", "drop_last", "shuffle", "seed", "num_workers", "num_examples", "num_samples")
_INNER: Final = ("dataset", "datasets", "data", "tensors", "source")
"""Attributes in which loaders and datasets of torch and of this library hold their data."""


def fingerprint(data: Any) -> Fingerprint | None:
    """Return the facts of data: its kind, length, settings, shapes, and a SHA-256 of some of its rows.

    >>> found = fingerprint([[1.0, 2.0], [3.0, 4.0]])
    >>> found["kind"], found["length"], found["sha256"][:8]
    ('list', 2, 'b2efddb2')

    Args:
        data: what a TrainManager is given as ``train_data``, or as a set of ``eval_data``; None gives None.
    """
    return None if data is None else _Looking().at(data, 0)


# ---- looking ---------------------------------------------------------------------------------------------------------


class _Looking:
    """Looks at data and at the data inside of it, at each object once."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}  # the level of each object that was looked at, by its id()

    def at(self, thing: Any, level: int) -> Fingerprint:
        """Return the fingerprint of one object."""
        kind = type(thing)
        found: Fingerprint = {"kind": class_name(kind)}
        if id(thing) in self.seen or level > DEEPEST:
            return found
        self.seen[id(thing)] = level
        try:
            found |= self._of_plain(thing) if kind in _PLAIN or is_array(thing) else self._of_object(thing, level)
        except Exception as error:  # properties of a user's class may raise anything; a meta tensor has no numbers
            found["unread"] = f"{type(error).__name__}: {error!s:.100}"
        return found

    def _of_plain(self, thing: Any) -> Fingerprint:
        """Return the shape and digest of an array, or of a list of batches, rows or numbers."""
        digest, unread = hashlib.sha256(), set[str]()
        add(digest, thing, limit=ROWS * NUMBERS, unread=unread)
        found: Fingerprint = array_facts(thing) if is_array(thing) else {"length": len(thing)}
        if isinstance(thing, list | tuple) and thing:
            found["first"] = _structure(thing[0])
        if isinstance(thing, dict):
            found["parts"] = {str(name): _structure(one) for name, one in thing.items()}
        return found | {"sha256": digest.hexdigest()} | ({"unread": sorted(unread)} if unread else {})

    def _of_object(self, thing: Any, level: int) -> Fingerprint:
        """Return the facts of a loader, a dataset or another object, by its attributes."""
        held: Mapping[str, Any] = getattr(thing, "__dict__", {})
        found: Fingerprint = {} if _is_stream(thing) else _length(thing)
        found |= {name: value for name, value in _settings(thing).items() if isinstance(value, bool | int | str)}
        record = held.get(RECORD)
        if record is not None:
            found["recorded"] = as_written(record)
        sampler = held.get("sampler")
        if sampler is not None and not isinstance(sampler, str):
            found["sampler"] = class_name(type(sampler))
        indices = held.get("indices")  # torch's Subset has them
        if isinstance(indices, list | tuple | range) or is_array(indices):
            found["indices"] = self.at(list(indices) if isinstance(indices, range) else indices, level + 1)
        inside = {name: one for name, one in self._inside(thing, held).items() if id(one) not in self.seen}
        return found | ({"parts": {name: self.at(one, level + 1) for name, one in inside.items()}} if inside else {})

    def _inside(self, thing: Any, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data in an object: its source, and the arrays that are its attributes."""
        # Loaders of this library keep their data in `source`; their other arrays, such as the order of an epoch, change
        # as they are read.
        is_own = _is_own(thing)
        found = {} if is_own else {name: one for name, one in held.items() if is_array(one)}
        named = {name: held[name] for name in _INNER if held.get(name) is not None}
        if is_own and (source := getattr(thing, "source", None)) is not None:
            named["source"] = source
        for name, one in named.items():
            if type(one) in (list, tuple) and _are_parts(one):
                found |= {f"{name}[{place}]": part for place, part in enumerate(one[:ROWS])}
            elif isinstance(one, dict) and any(map(_is_data, one.values())):
                found |= {f"{name}[{key!r}]": part for key, part in one.items()}
            elif type(one) in _PLAIN or _is_data(one):
                found[name] = one
        return found


_PLAIN: Final = (list, tuple, dict)


def _are_parts(things: Sequence[Any]) -> bool:
    """Return whether a list is one of datasets, or of a few arrays, and not of rows or batches."""
    if all(map(is_array, things)):
        return len(things) <= DEEPEST
    return any(_is_data(one) and not is_array(one) and type(one) not in _PLAIN for one in things[:ROWS])


def _is_data(thing: Any) -> bool:
    if isinstance(thing, str | bytes):
        return False
    return is_array(thing) or hasattr(type(thing), "__getitem__") or hasattr(type(thing), "__iter__")


def _is_own(thing: Any) -> bool:
    return type(thing).__module__.startswith("train_manager.")


def _is_stream(thing: Any) -> bool:
    """Return whether it is a stream, whose length is not asked for."""
    # After `len`, torch's DataLoader counts the batches of a stream, and warns if there are more.
    from torch.utils.data import IterableDataset

    return isinstance(thing, IterableDataset) or isinstance(getattr(thing, "dataset", None), IterableDataset)


def _length(thing: Any) -> Fingerprint:
    try:
        return {"length": len(thing)} if hasattr(type(thing), "__len__") else {}
    except Exception:  # a user's `__len__` may raise anything
        return {}


def _settings(thing: Any) -> dict[str, Any]:
    held = getattr(thing, "__dict__", {})
    found = {name: held.get(name, held.get(f"_{name}")) for name in _SETTINGS}
    # Loaders of this library keep their batch size as `_size`.
    size = held.get("_size") if _is_own(thing) else None
    return found | ({"batch_size": size} if size is not None and found["batch_size"] is None else {})


def _structure(value: Any) -> Any:
    """Return the shapes of the values of a batch."""
    if is_array(value):
        facts = array_facts(value)
        return f"{facts['dtype']} {facts['shape']}"
    if type(value) in (list, tuple) and len(value) <= ROWS:
        return (
            [_structure(one) for one in value]
            if any(map(is_array, value))
            else f"{type(value).__name__} of {len(value)}"
        )
    if type(value) is dict:
        return {str(name): _structure(one) for name, one in list(value.items())[:ROWS]}
    return type(value).__name__
