"""What rotates: of several places each case gets one, in turn; with ``--all-places`` each case gets all of them.

A claim on every extension, or on every training, is so tested on each of them in every run of the tests, and at each
place by some of them. Where there are many claims, as on the shipped extensions, a claim takes a part of the cases, and
each case has a part of the claims. ``make chaos`` and ``.ci/run`` test all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")
Place = TypeVar("Place")

ALL_PLACES = "--all-places"
_chosen = {"all": False}  # set by the option, before the first module of tests is imported


def choose_all() -> None:
    """Let each case get all places from now on."""
    _chosen["all"] = True


def places_of(number: int, places: Sequence[Place]) -> list[Place]:
    """Return the places of a case, by its number among the cases."""
    return [*places] if _chosen["all"] else [places[number % len(places)]]


def is_in_turn(name: str, one_in: int) -> bool:
    """Return whether a case is one of those that are tested at two places, by its name."""
    return _chosen["all"] or crc32(name.encode()) % one_in == 0


def part_of(cases: Sequence[Case], one_in: int, first: int = 0) -> list[Case]:
    """Return one in some cases, beginning at one of them; or all."""
    return [*cases] if _chosen["all"] else [*cases[first::one_in]]


def stride(most: int) -> int:
    """Return the distance of the points that are tested, where each training is one at the next point; 1 for all."""
    return 1 if _chosen["all"] else most


def share_of(count: int) -> int:
    """Return how many of some random cases are tested: a third, or all."""
    return count if _chosen["all"] else -(-count // 3)


def in_turn(cases: Iterable[Case], places: Sequence[Place]) -> list[tuple[Case, Place]]:
    """Return the pairs of a case and a place that are tested."""
    return [(case, place) for number, case in enumerate(cases) for place in places_of(number, places)]
