"""Extensions that work on a copy of what they hold, for a while."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from train_manager.core.extension import Extension
from train_manager.core.schedule import SCHEDULES, Schedule


@contextmanager
def copied_extensions(
    extensions: Mapping[str, Extension], shared: Iterable[tuple[object, object]]
) -> Iterator[Mapping[str, str]]:
    """Let extensions work on a deep copy of their attributes; as the ``with`` block ends, they have the originals.

    The extensions stay the same objects, so that their hooks need not be read anew.

    >>> class Losses(Extension):
    ...     def __init__(self):
    ...         self.seen = [0.5]
    >>> losses = Losses()
    >>> seen = losses.seen
    >>> with copied_extensions({"losses": losses}, []):
    ...     losses.seen.append(0.4)
    ...     losses.last = 0.4
    >>> losses.seen is seen, seen, vars(losses)
    (True, [0.5], {'seen': [0.5]})

    Args:
        extensions: by name.
        shared: objects that are not copied where an extension refers to them, each with what stands for it.

    Yields:
        Why an extension could not be copied, by name; it has its originals.
    """
    pairs = [*shared, *((one, one) for one in extensions.values())]
    memo = {id(one): instead for one, instead in pairs}
    copies, refused = dict[str, dict[str, Any]](), dict[str, str]()
    memos = [memo]  # all stay alive: each has its own id as a key, which no other object may get
    for name, extension in extensions.items():
        memos.append(tried := dict(memo))
        try:
            copies[name] = _copied_attributes(extension, tried)
        except Exception as error:  # whatever an object of the user's raises in its own copying
            refused[name] = f"it cannot be copied ({type(error).__name__}: {error})"
        else:
            memo = tried
    originals = {name: vars(extensions[name]) for name in copies}
    try:
        for name, attributes in copies.items():
            _give(extensions[name], attributes)
        yield refused
    finally:
        for name, attributes in originals.items():
            _give(extensions[name], attributes)


def schedules_in(extension: Extension) -> list[Schedule]:
    """Return the schedules of the hooks of an extension, which its hooks hold as well."""
    return [schedule for of_hook in getattr(extension, SCHEDULES, {}).values() for schedule in of_hook]


def _copied_attributes(extension: Extension, memo: dict[int, Any]) -> dict[str, Any]:
    """Return a copy of what an extension holds, as a copy of the extension would hold it."""
    own = memo.pop(id(extension))
    made = copy.deepcopy(extension, memo)
    memo[id(extension)] = own
    attributes: dict[str, Any] = vars(made)
    return attributes


def _give(extension: Extension, attributes: dict[str, Any]) -> None:
    object.__setattr__(extension, "__dict__", attributes)  # also of a frozen dataclass
