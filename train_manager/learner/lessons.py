"""The curriculum of a file: how a teacher chooses the dataset of each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from train_manager.learner.description import Description, Mistakes
from train_manager.learner.keys import COUNT, Key, read_keys
from train_manager.learner.words import EXTENSION, Entry, Filled, read_entry

KEYS: Final = {
    "probe": Key(COUNT, "the labelled rows of each dataset that are not trained on: the teacher measures by them"),
    "steps_per_epoch": Key(COUNT, "the steps of an epoch, which has no end of its own", required=True),
}
"""The keys of a curriculum, beside the arguments of the extension ``Curriculum``."""

PROBE: Final = 64


class Lessons(NamedTuple):
    """A curriculum as its table says.

    Attributes:
        entry: the extension and its arguments.
        probe: the rows of each dataset that are not trained on.
        steps_per_epoch: the steps of an epoch.
    """

    entry: Entry
    probe: int
    steps_per_epoch: int


def read_lessons(
    description: Description, table: Mapping[str, Any], datasets: int, fewest: int, mistakes: Mistakes
) -> Lessons | None:
    """Read the table ``curriculum``; None if there is a mistake in it.

    Args:
        datasets: their number.
        fewest: the labelled rows of the dataset that has the fewest.
    """
    path = ("curriculum",)
    found = read_keys(description, path, table, KEYS, mistakes, has_arguments=True)
    given = {"use": "Curriculum", **table}
    entry = read_entry(description, path, given, EXTENSION, mistakes, keys=KEYS, filled=Filled(given=("probe",)))
    probe = found.get("probe", PROBE)
    if datasets < 2:
        mistakes.add(description, path, "chooses between datasets, but there is one")
    elif probe >= fewest:
        what = f"is {probe}, but a dataset has {fewest} labelled rows, of which some must be left to train on"
        mistakes.add(description, (*path, "probe"), what)
    if entry is None or "steps_per_epoch" not in found:
        return None
    return Lessons(entry, probe, found["steps_per_epoch"])
