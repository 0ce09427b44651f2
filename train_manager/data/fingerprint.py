"""What data is made of, in a few numbers: to see later whether a training was given the same.

Data is only looked at: no method except ``len`` is called, no example is loaded, no random state moves. Of arrays and
lists in memory up to 64 rows at even distances are hashed, so that it takes milliseconds for data of any size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from train_manager.rebuilding.recorded import as_written
from train_manager.rebuilding.value_trees import RECORD

ROWS: Final = 64  # rows of an array or a list that are hashed
NUMBERS: Final = 1024  # numbers of each of these rows, at most about twice as many
LEVELS: Final = 2  # wrappers around data, such as a loader of a part of a dataset

Fingerprint = dict[str, Any]

_SETTINGS: Final = ("batch_size", "drop_last", "shuffle", "seed", "num_workers", "num_examples", "num_samples")
_INNER: Final = ("dataset", "datasets", "indices", "data", "tensors", "source")
"""Attributes in which loaders and datasets of torch and of this library hold their data."""
_PLAIN: Final = (list, tuple, range, dict)
# No subclasses, whose methods may be a user's.
_ARRAYS: Final = frozenset(
    {("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("numpy", "ndarray"), ("numpy", "memmap")}
)


def fingerprint(data: Any, level: int = 0) -> Fingerprint | None:
    """Return the facts of data: its kind, length, settings, shapes, and a SHA-256 of some of its rows.

    >>> found = fingerprint([[1.0, 2.0], [3.0, 4.0]])
    >>> found["kind"], found["length"], found["sha256"][:8]
    ('list', 2, 'b2efddb2')

    Args:
        data: what a TrainManager is given as ``train_data``, or as a set of ``eval_data``; None gives None.
        level: how many wrappers are around it.
    """
    if data is None:
        return None
    found: Fingerprint = {"kind": _class_name(type(data))}
    try:
        is_plain = type(data) in _PLAIN or _is_array(data)
        return found | (_of_plain(data, level) if is_plain else _of_object(data, level))
    except Exception as error:  # properties of a user's class may raise anything; a meta tensor has no numbers
        return found | {"unread": f"{type(error).__name__}: {error!s:.100}"}


def row_digests(found: Fingerprint | None, place: str = "train_data") -> dict[str, str]:
    """Return the digests of rows in a fingerprint, by the place and the shape of what they are of.

    >>> [*row_digests(fingerprint([1.0, 2.0]))]
    ['train_data {"length": 2, "first": "float"}']

    Digests under the same key are of as many rows of the same form: if they differ, the rows do.
    """
    if found is None:
        return {}
    parts = {name: part for name, part in found.get("parts", {}).items() if isinstance(part, dict) and "kind" in part}
    if parts or "sha256" not in found:
        digests = [row_digests(part, f"{place}.{name}") for name, part in parts.items()]
        return {key: digest for one in digests for key, digest in one.items()}
    facts = {name: fact for name, fact in found.items() if name not in ("kind", "sha256")}
    return {f"{place} {json.dumps(facts)}": found["sha256"]}


# ---- what it is made of ----------------------------------------------------------------------------------------------


def _of_plain(thing: Any, level: int) -> Fingerprint:
    """Return the shape and digest of an array, or of a list of batches, rows, numbers or datasets."""
    digest = hashlib.sha256()
    _add(digest, thing, ROWS * NUMBERS, level)
    found: Fingerprint = _array_facts(thing) if _is_array(thing) else {"length": len(thing)}
    if isinstance(thing, list | tuple) and thing:
        found["first"] = _structure(thing[0])
    if isinstance(thing, dict):
        found["parts"] = {str(name): _structure(one) for name, one in thing.items()}
    if isinstance(thing, list | tuple | dict):
        pairs = list(thing.items() if isinstance(thing, dict) else enumerate(thing))[:ROWS]
        # Datasets and loaders: as the digest of all has their settings too, each has one of its rows alone.
        objects = {str(name): fingerprint(one, level) for name, one in pairs if _is_object_with_data(one)}
        found |= {"parts": {**found.get("parts", {}), **objects}} if objects else {}
    return found | {"sha256": digest.hexdigest()}


def _of_object(thing: Any, level: int) -> Fingerprint:
    """Return the facts of a loader, a dataset or another object, by its attributes."""
    held: Mapping[str, Any] = getattr(thing, "__dict__", {})
    found = _length(thing)
    settings = {name: held.get(name, held.get(f"_{name}")) for name in _SETTINGS}
    found |= {name: value for name, value in settings.items() if isinstance(value, bool | int | str)}
    if (record := held.get(RECORD)) is not None:
        found["recorded"] = as_written(record)
    sampler = held.get("sampler")
    if sampler is not None and not isinstance(sampler, str):
        found["sampler"] = _class_name(type(sampler))
    parts = {name: fingerprint(one, level + 1) for name, one in _parts(thing, held)} if level <= LEVELS else {}
    return found | ({"parts": parts} if parts else {})


def _parts(thing: Any, held: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the data in an object with their names: its source, and the arrays that are its attributes."""
    # Loaders of this library keep their data in `source`; their other arrays, such as the order of an epoch, change
    # as they are read.
    is_own = type(thing).__module__.startswith("train_manager.")
    named = {name: one for name, one in held.items() if name in _INNER or (_is_array(one) and not is_own)}
    if is_own:
        named["source"] = getattr(thing, "source", None)
    yield from ((name, one) for name, one in named.items() if _is_data(one))


def _is_data(thing: Any) -> bool:
    is_read = hasattr(type(thing), "__getitem__") or hasattr(type(thing), "__iter__")
    return is_read and not isinstance(thing, str | bytes)


def _is_object_with_data(thing: Any) -> bool:
    return _is_data(thing) and not _is_array(thing) and type(thing) not in _PLAIN


def _length(thing: Any) -> Fingerprint:
    from torch.utils.data import IterableDataset

    # After `len`, torch's DataLoader counts the batches of a stream, and warns if there are more.
    if isinstance(thing, IterableDataset) or isinstance(getattr(thing, "dataset", None), IterableDataset):
        return {}
    try:
        return {"length": len(thing)}
    except Exception:  # it has none, or a user's `__len__` raises
        return {}


def _structure(value: Any) -> Any:
    """Return the shapes of the values of a batch."""
    if _is_array(value):
        facts = _array_facts(value)
        return f"{facts['dtype']} {facts['shape']}"
    if type(value) in (list, tuple) and len(value) <= ROWS:
        is_batch = any(map(_is_array, value))
        return [_structure(one) for one in value] if is_batch else f"{type(value).__name__} of {len(value)}"
    if type(value) is dict:
        return {str(name): _structure(one) for name, one in list(value.items())[:ROWS]}
    return type(value).__name__


# ---- the digest of some of its rows ----------------------------------------------------------------------------------


def _add(digest: Any, value: Any, limit: int, level: int) -> None:
    """Add a value to a digest: about as many numbers as the limit says, at even distances; of an object its facts."""
    if _is_array(value) and getattr(value.dtype, "hasobject", False):
        value = value.tolist()  # the bytes of an array of objects are pointers, which differ from process to process
    if _is_array(value):
        digest.update(f"a{_array_facts(value)}".encode())
        for piece in _pieces(value, limit):
            digest.update(_bytes_of(piece))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        # Each value has its length before it, so that ["ab"] and ["a", "b"] differ.
        digest.update(b"v%d:" % len(text) + text)
    elif type(value) in _PLAIN:
        # A dict and a list of its pairs differ by their letter.
        digest.update(b"%c%d:" % (b"d" if type(value) is dict else b"l", len(value)))
        rows = list(value.items()) if type(value) is dict else value
        # Of a list of numbers as many as the limit allows; of a list of batches at most ROWS.
        places = _evenly(len(rows), limit if rows and isinstance(rows[0], int | float) else min(limit, ROWS))
        for place in places:
            _add(digest, rows[place], max(1, limit // len(places)), level)
    else:
        digest.update(b"o" + json.dumps(fingerprint(value, level), default=str).encode())


def _pieces(array: Any, limit: int) -> list[Any]:
    """Return some rows of an array at even distances, with some numbers of each: nothing else of it is copied."""
    if array.ndim < 2:
        return [array[_evenly(len(array), limit)] if array.ndim else array]
    rows = [array[place].reshape(-1) for place in _evenly(len(array), min(ROWS, limit))]
    return [row[:: max(1, len(row) * len(rows) // limit)] for row in rows]


def _evenly(count: int, most: int) -> list[int]:
    """Return up to ``most`` of the numbers below ``count``, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [place * (count - 1) // max(1, most - 1) for place in range(most)]


def _bytes_of(array: Any) -> bytes:
    """Return the numbers of an array as bytes, the same for tensors and arrays of the same numbers."""
    import numpy as np
    import torch

    if isinstance(array, torch.Tensor):
        # `resolve_*`: torch stores conjugation and negation as flags, and the memory below is that of the original.
        plain = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        array = plain.reshape(-1).view(torch.uint8).numpy()
    content: bytes = np.ascontiguousarray(array).tobytes()
    return content


# ---- what values are -------------------------------------------------------------------------------------------------


def _is_array(thing: Any) -> bool:
    """Return whether it is a tensor of torch or an array of numpy."""
    return (type(thing).__module__, type(thing).__name__) in _ARRAYS


def _class_name(kind: type) -> str:
    """Return the name of a class, with its module unless it is Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}:{kind.__qualname__}"


def _array_facts(array: Any) -> dict[str, Any]:
    """Return the shape and the kind of numbers."""
    return {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("torch.")}
