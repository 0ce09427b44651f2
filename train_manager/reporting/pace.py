"""How often something is drawn that nobody looks at, such as a progress bar in the log file of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic
from typing import Final, final

MOST: Final = 1000  # drawings
THEN: Final = 3.0  # seconds between two drawings after these


@final
class Pace:
    """Lets a thousand drawings through, and then one every three seconds.

    >>> pace = Pace(clock=lambda: 0.0)
    >>> for number in range(1000):
    ...     pace.drew()
    >>> pace.allows()
    False

    Args:
        clock: a function that returns the seconds since any fixed moment.
        most: the drawings that are always allowed.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, most: float = MOST) -> None:
        self._clock, self._most = clock, most
        self._count = 0
        self._drawn_at = -math.inf

    def allows(self) -> bool:
        """Return whether it may be drawn now."""
        return self._count < self._most or self._clock() - self._drawn_at >= THEN

    def drew(self) -> None:
        """Count a drawing."""
        self._count += 1
        self._drawn_at = self._clock()
