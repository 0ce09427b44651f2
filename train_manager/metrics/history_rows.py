"""Rows of the history: their place in the training, and the metrics that were measured there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from train_manager.telling.errors import InputError

PLACE: Final = ("epoch", "step", "phase", "partial", "seconds", "standalone", "set")
"""The columns that say where and how a row was measured; all other columns are metrics."""

PART: Final = "losses/"
"""The prefix of the names of several losses: of optimizers, or the loss terms of ``loss``."""

Row = dict[str, Any]
"""One epoch, or one evaluation of one set: numbers by name."""


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a row: the row without its place.

    >>> metrics_of({"epoch": 1, "step": 50, "set": "valid", "loss": 0.25})
    {'loss': 0.25}
    """
    return {name: value for name, value in row.items() if name not in PLACE}


def refuse_names_of_places(names: Iterable[str], describe: Callable[[str], str], cure: Callable[[str], str]) -> None:
    """Refuse a metric that is called like a place: the row has no room for both.

    Args:
        names: of metrics.
        describe: returns a clause for a name: the object that has the name, and the extension that has given it.
        cure: returns the cure for a name.

    Raises:
        InputError: with the first such name.
    """
    taken = next((name for name in names if name in PLACE), None)
    if taken is not None:
        what = f"{describe(taken)}, but in the history {taken!r} tells where or how a row was measured"
        raise InputError(what, name=taken, cure=cure(taken))


def is_loss(name: str) -> bool:
    """Return whether a metric is a loss of the training.

    >>> is_loss("loss"), is_loss("losses/generator"), is_loss("accuracy")
    (True, True, False)
    """
    return name == "loss" or name.startswith(PART)


def last_metrics(epochs: Sequence[Row], evaluations: Iterable[Row]) -> dict[str, Any]:
    """Return the last numbers of the training, and of each evaluation set under its name.

    >>> last_metrics([{"epoch": 1, "loss": 0.5}], [{"set": "valid", "loss": 0.75}, {"set": "valid", "loss": 0.25}])
    {'loss': 0.5, 'valid/loss': 0.25}
    """
    found = metrics_of(epochs[-1]) if epochs else {}
    for row in evaluations:
        found |= {f"{row['set']}/{name}": value for name, value in metrics_of(row).items()}
    # A hook may add other values than numbers to a row, such as a text.
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
