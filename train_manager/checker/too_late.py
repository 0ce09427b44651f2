"""Where a fixture is modified too late: the loop does not look at it any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class TooLate:
    """Points at which the loop does not look at a fixture any more, so that ``@modifies`` is refused there.

    Attributes:
        names: the fixtures.
        because: what the loop has done with them by then; ends the first line of the error.
        cure: what to do instead.
        points: names of hooks, as ``post_train_step_batch``; none if the fixtures are read-only.
    """

    names: tuple[str, ...]
    because: str
    cure: str
    points: frozenset[str] = frozenset()
