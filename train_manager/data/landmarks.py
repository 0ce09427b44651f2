"""Digests of some batches of a pass, which show whether a pass that is read again gives the same batches.

``Reader`` notes them of data whose order is not known to repeat. ``fingerprint`` makes the digests.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from typing import Any, final

from train_manager.data.fingerprint import fingerprint
from train_manager.data.loader_position import cure_of_order
from train_manager.telling.source_locations import users_level


@final
class Landmarks:
    """Digests of the batches 1, 2, 4, 8, ... of a pass: few of a long pass, and of its early and late parts.

    >>> landmarks, again = Landmarks(), Landmarks()
    >>> for number, batch in enumerate("abcde", 1):
    ...     landmarks.note(number, batch)
    >>> for number, batch in enumerate("abc", 1):
    ...     again.note(number, batch)
    >>> len(landmarks.digests), again.are_of_the_pass(landmarks.digests, given=3)
    (3, True)

    Attributes:
        digests: those of the batches that were given.
    """

    def __init__(self) -> None:
        self.digests: list[str] = []

    def note(self, number: int, batch: Any) -> None:
        """Note a batch by its number in the pass, from 1, if the number is a power of two."""
        if number & (number - 1) == 0:
            facts = json.dumps(fingerprint(batch), default=str)
            self.digests.append(hashlib.sha256(facts.encode()).hexdigest()[:16])

    def are_of_the_pass(self, saved: Sequence[str], given: int) -> bool:
        """Return whether the digests of the first ``given`` batches are saved ones.

        Args:
            saved: digests of a pass, perhaps with that of a batch that was read ahead.
            given: how many batches were read again.
        """
        number = given.bit_length()  # of the powers of two up to `given`
        return len(saved) >= number and self.digests == [*saved[:number]]


def warn_of_other_batches(name: str, data: object, given: int, *, is_known: bool) -> None:
    """Warn that a training may not resume where it was, as its data has not given the same batches again.

    Args:
        name: of the data.
        data: the data.
        given: how many batches were read again.
        is_known: whether the checkpoint has digests of the batches.
    """
    what = f"{name} ({type(data).__name__}) does not tell its position, so its first {given} batches are read again"
    others = "were others before the checkpoint" if is_known else "may have been others before the checkpoint"
    text = f"{what} and left out, but they {others}: the rest of the epoch may have some of them once more"
    warnings.warn(f"{text}; {cure_of_order(data)}", RuntimeWarning, stacklevel=users_level())
