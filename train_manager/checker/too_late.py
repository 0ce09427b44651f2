"""Points at which a fixture is modified too late: the loop does not read it any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class TooLate:
    """Points at which the loop does not read a fixture any more, so that ``@modifies`` is refused there."""

    names: tuple[str, ...]  # the fixtures
    because: str  # the reason, which ends the first line of the error: the loop has used the fixture by then
    cure: str
    points: frozenset[str] = frozenset()  # names of hooks, as `post_train_step_batch`; empty: no hook may modify them
