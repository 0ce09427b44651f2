"""What a row of the history is made of: its place in the training, and the figures that were measured there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from train_manager.telling.errors import InputError

PLACE: Final = ("epoch", "step", "phase", "partial", "seconds", "standalone", "set")
"""Where and how a row was measured; the rest of it is figures."""

PART: Final = "losses/"
"""What the name of a loss begins with that is one of several: of an optimizer, or a part of ``loss``."""

Row = dict[str, Any]
"""One epoch, or one evaluation of one set: numbers by name."""


def figures_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: a row without its place; nothing measured may be called like that.

    >>> figures_of({"epoch": 1, "step": 50, "set": "valid", "loss": 0.25})
    {'loss': 0.25}
    """
    return {name: value for name, value in row.items() if name not in PLACE}


def refuse_names_of_places(names: Iterable[str], told: Callable[[str], str], cure: Callable[[str], str]) -> None:
    """Refuse a figure that is called like a place: the row has no room for both.

    Args:
        names: of figures.
        told: returns what has the name, and which extension has given it.
        cure: returns what to do about a name.

    Raises:
        InputError: with the first such name.
    """
    taken = next((name for name in names if name in PLACE), None)
    if taken is not None:
        what = f"{told(taken)}, but in the history {taken!r} tells where or how a row was measured"
        raise InputError(what, name=taken, cure=cure(taken))


def is_loss(name: str) -> bool:
    """Return whether a figure is a loss of the training.

    >>> is_loss("loss"), is_loss("losses/generator"), is_loss("accuracy")
    (True, True, False)
    """
    return name == "loss" or name.startswith(PART)


def last_figures(epochs: Sequence[Row], evaluations: Iterable[Row]) -> dict[str, Any]:
    """Return the last numbers of the training, and of each evaluation set under its name.

    >>> last_figures([{"epoch": 1, "loss": 0.5}], [{"set": "valid", "loss": 0.75}, {"set": "valid", "loss": 0.25}])
    {'loss': 0.5, 'valid/loss': 0.25}
    """
    found = figures_of(epochs[-1]) if epochs else {}
    for row in evaluations:
        found |= {f"{row['set']}/{name}": value for name, value in figures_of(row).items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
