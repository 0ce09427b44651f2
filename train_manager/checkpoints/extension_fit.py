"""With which extensions a training was made, and with what arguments, in the program and in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from train_manager.checkpoints.fit import Difference
from train_manager.rebuilding.recorded_rows import expression
from train_manager.rebuilding.value_trees import RECORD

WATCHING: Final = tuple(
    f"train_manager.extensions.{room}." for room in ("debugging", "logging", "reproducibility", "visualization")
)
"""Modules of extensions that change nothing of what is trained, so that their arguments may be others at each start."""


def made_extensions(extensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class of each recorded extension that may change the training, and its arguments as texts."""
    trains = {name: one for name, one in extensions.items() if not type(one).__module__.startswith(WATCHING)}
    records = {name: vars(one).get(RECORD) for name, one in trains.items()}
    return {
        name: {"class": type(extensions[name]).__name__, "arguments": _texts(record["arguments"])}
        for name, record in records.items()
        if record is not None
    }


def _texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: expression(one) for name, one in arguments.items()}


def replaced_extensions(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Return the names that stand for extensions of another class now."""
    return [name for name in here.keys() & there.keys() if here[name]["class"] != there[name]["class"]]


def extensions_that_differ(
    here: Mapping[str, Any], there: Mapping[str, Any], states: Mapping[str, Any]
) -> Iterator[str | Difference]:
    """Say which extensions differ, where the program counts, and which state is of an extension of another class."""
    for name in {**there, **here}:
        own, saved = (of.get(name, {"class": "none", "arguments": {}}) for of in (here, there))
        if states.get(name) and name in here and name in there and own["class"] != saved["class"]:
            yield f"extension {name!r} is {own['class']} here, but {saved['class']} in the checkpoint"
        elif own["class"] != saved["class"]:
            yield Difference(f"extension {name!r}", own["class"], saved["class"], own["class"])
        else:
            for argument, value in own["arguments"].items():
                before = saved["arguments"].get(argument, value)
                if value != before:
                    yield Difference(f"{argument} of extension {name!r}", value, before, value)
