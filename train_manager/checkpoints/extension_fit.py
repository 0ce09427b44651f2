"""The extensions of a training and their arguments, compared between the program and a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from train_manager.checkpoints.fit import Difference, options_that_differ
from train_manager.checkpoints.made import Made
from train_manager.rebuilding.recorded_rows import expression
from train_manager.rebuilding.value_trees import RECORD

WATCHING: Final = tuple(
    f"train_manager.extensions.{room}." for room in ("debugging", "logging", "reproducibility", "visualization")
)
"""Modules of extensions that do not influence the training, so that their arguments may differ at each start."""


def extension_facts(extensions: Mapping[str, Any]) -> dict[str, Made]:
    """Return how each recorded extension that may change the training was made."""
    # Extensions that only watch may differ at each start, so they are left out of the comparison.
    trains = {name: one for name, one in extensions.items() if not type(one).__module__.startswith(WATCHING)}
    records = {name: vars(one).get(RECORD) for name, one in trains.items()}
    return {
        name: {
            "class": type(extensions[name]).__name__,
            "options": {argument: expression(tree) for argument, tree in record["arguments"].items()},
        }
        for name, record in records.items()
        if record is not None
    }


def replaced_extensions(here: Mapping[str, Made], there: Mapping[str, Made]) -> list[str]:
    """Return the names under which the program and the checkpoint have extensions of different classes."""
    return [name for name in here.keys() & there.keys() if here[name]["class"] != there[name]["class"]]


def extensions_that_differ(
    here: Mapping[str, Made], there: Mapping[str, Made], states: Mapping[str, Any]
) -> Iterator[str | Difference]:
    """Yield the differences between extensions, and as a text each misfit: a state of another class.

    Of extensions and their arguments the program's are used, because a checkpoint holds only their states.
    """
    none: Made = {"class": "none", "options": {}}
    for name in {**there, **here}:
        own, saved, label = here.get(name, none), there.get(name, none), f"extension {name!r}"
        # A state of another class cannot be loaded: a text ends the resume, a Difference is only reported.
        if states.get(name) and name in here and name in there and own["class"] != saved["class"]:
            yield f"{label} is {own['class']} here, but {saved['class']} in the checkpoint"
        elif own["class"] != saved["class"]:
            yield Difference(label, own["class"], saved["class"], own["class"])
        else:
            yield from options_that_differ(label, own, saved, keeps_own=True)
