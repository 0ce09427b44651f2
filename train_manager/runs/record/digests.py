"""Digests of values: of all that is in them, or of some at even distances.

Tensors and arrays of the same numbers have the same digest; of an object that is not known, its class alone counts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, Final

ROWS: Final = 64  # rows of an array that a limited digest reads, at even distances
NUMBERS: Final = 1024  # numbers of each of these rows


def digest_of_batches(batches: Iterable[Any]) -> dict[str, Any]:
    """Return the number of batches, and a SHA-256 of all that is in them; of unknown objects their class only.

    >>> digest_of_batches([[1, 2], [3]]) == digest_of_batches(iter([[1, 2], [3]]))
    True
    """
    digest, count, unread = hashlib.sha256(), 0, set[str]()
    for batch in batches:
        add(digest, batch, limit=None, unread=unread)
        count += 1
    found: dict[str, Any] = {"batches": count, "sha256": digest.hexdigest()}
    return found | ({"unread": sorted(unread)} if unread else {})


def add(digest: Any, value: Any, *, limit: int | None, unread: set[str]) -> None:
    """Add a value to a digest: all of it, or about as many numbers as the limit says, at even distances."""
    if is_array(value):
        _add_array(digest, value, limit)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        # Each value has its kind and its length before it, so that ["ab"] and ["a", "b"] differ.
        digest.update(b"v%d:" % len(text) + text)
    elif type(value) is dict:
        digest.update(b"d%d:" % len(value))
        for key, one in _some(list(value.items()), limit):
            add(digest, key, limit=limit, unread=unread)
            add(digest, one, limit=_share(limit, len(value)), unread=unread)
    elif type(value) in (list, tuple):
        digest.update(b"l%d:" % len(value))
        chosen = _some(value, limit)
        for one in chosen:
            add(digest, one, limit=_share(limit, len(chosen)), unread=unread)
    else:
        unread.add(class_name(type(value)))
        digest.update(b"o" + class_name(type(value)).encode())


def _share(limit: int | None, among: int) -> int | None:
    return None if limit is None else max(1, limit // max(1, among))


def _some(values: Any, limit: int | None) -> Any:
    """Return the values, or some at even distances; of plain numbers more than of batches."""
    count = len(values)
    # Of a list of numbers as many as the limit allows; of a list of batches at most ROWS.
    most = (
        count if limit is None else min(count, limit, limit if count and isinstance(values[0], int | float) else ROWS)
    )
    return values if most == count else [values[place] for place in _evenly(count, most)]


def _evenly(count: int, most: int) -> list[int]:
    """Return up to ``most`` of the numbers below ``count``, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [place * (count - 1) // max(1, most - 1) for place in range(most)]


def _add_array(digest: Any, array: Any, limit: int | None) -> None:
    facts = array_facts(array)
    digest.update(f"a{facts['dtype']}{facts['shape']}".encode())
    total = math.prod(array.shape)
    if limit is not None and total > limit:
        array = _sample(array, limit)
    digest.update(_bytes_of(array))


def _sample(array: Any, limit: int) -> Any:
    """Return some rows at even distances, and some numbers of each: nothing else of the array is read or copied."""
    shape = list(array.shape)
    counts = [min(shape[0], ROWS, limit)] + [1] * (len(shape) - 1)
    left = max(1, limit // max(1, counts[0]))
    # The numbers of a row are spread over its axes, from the last one on.
    for dimension in range(len(shape) - 1, 0, -1):
        counts[dimension] = min(shape[dimension], left)
        left = max(1, left // max(1, counts[dimension]))
    if len(shape) == 1:
        counts = [min(shape[0], limit)]
    places = [_evenly(size, count) for size, count in zip(shape, counts, strict=True)]
    if type(array).__module__ == "numpy":
        import numpy as np

        return array[np.ix_(*places)]
    import torch

    return array.detach()[torch.meshgrid(*(torch.tensor(one, device=array.device) for one in places), indexing="ij")]


def _bytes_of(array: Any) -> bytes:
    """Return the numbers of an array as bytes, the same for tensors and arrays of the same numbers."""
    import numpy as np
    import torch

    if isinstance(array, np.ndarray):
        # The bytes of an array of objects are pointers, which differ from process to process.
        if array.dtype.hasobject:
            return repr(
                [repr(one) if isinstance(one, int | float | str) else type(one).__name__ for one in array.flat]
            ).encode()
        return np.ascontiguousarray(array).tobytes()
    # `resolve_*`: torch stores conjugation and negation as flags, and the memory below is that of the original.
    plain = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content: bytes = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return content


# ---- what values are -------------------------------------------------------------------------------------------------


def is_array(thing: Any) -> bool:
    """Return whether it is a tensor of torch or an array of numpy: no subclass, whose methods may be a user's."""
    kind = type(thing)
    return (kind.__module__, kind.__name__) in _ARRAYS


_ARRAYS: Final = frozenset(
    {("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("numpy", "ndarray"), ("numpy", "memmap")}
)


def class_name(kind: type) -> str:
    """Return the name of a class, with its module unless it is Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}:{kind.__qualname__}"


def array_facts(array: Any) -> dict[str, Any]:
    """Return the shape, the kind of numbers, and where they are if not in the memory of the CPU."""
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype).removeprefix("torch.")}
    device = getattr(array, "device", None)
    return facts if device is None or str(device) == "cpu" else {**facts, "device": str(device)}
