"""A difference between two runs, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

LONGEST: Final = 80  # characters of a value that is shown


@final
@dataclass(frozen=True)
class Difference:
    """What is not the same there, where a run was recorded, and here.

    >>> print(Difference("threads of torch", 2, 1)), print(Difference("numpy", None, "2.1"))
    threads of torch 2 there, 1 here
    numpy none there, 2.1 here
    (None, None)

    Attributes:
        what: it is about, as "torch".
        there: the value of the run that was recorded; None if it has none.
        here: the other value.
    """

    what: str
    there: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.what} {_shown(self.there)} there, {_shown(self.here)} here"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = "yes" if value is True else "no" if value is False else " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def differing(there: Mapping[str, Any], here: Mapping[str, Any], name: str) -> Iterator[Difference]:
    """Compare two dicts, and the dicts in them: ``name`` is what a difference is about, with ``{}`` for its key."""
    for key in {**there, **here}:
        before, now = there.get(key), here.get(key)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from differing(before, now, name.format(f"{key} {{}}"))
        elif before != now:
            yield Difference(name.format(key), before, now)
