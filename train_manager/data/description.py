"""Data in a few words, for a ``repr``; nothing is read for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

from train_manager.telling.showing import cut


def batches_text(data: Iterable[Any]) -> str:
    """Return the class of the data, and how many batches it has; of data of this library its own ``repr``.

    >>> batches_text([1, 2, 3]), batches_text(iter([1]))
    ('list(3 batches)', 'list_iterator')
    """
    kind = type(data)
    # InMemory, Interleaved and the like describe themselves, with the sets in them.
    if kind.__module__.startswith("train_manager."):
        return cut(repr(data))
    try:
        length = len(data) if isinstance(data, Sized) else None
    except Exception:  # a DataLoader of an IterableDataset has a len() that raises
        length = None
    if length is None:
        return kind.__name__
    size = getattr(data, "batch_size", None)
    return f"{kind.__name__}({count_text(length, size if isinstance(size, int) else None)})"


def count_text(batches: int, size: int | None) -> str:
    """Return ``23 batches of 64``."""
    of = "" if size is None else f" of {size:,}"
    return f"{batches:,} batch{'' if batches == 1 else 'es'}{of}"


def sets_text(sets: Mapping[str, Iterable[Any]]) -> str:
    """Return ``{'valid': list(3 batches)}``."""
    return cut(f"{{{', '.join(f'{name!r}: {batches_text(data)}' for name, data in sets.items())}}}")
