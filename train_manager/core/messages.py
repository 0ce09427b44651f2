"""The errors about fixtures and stages: each function makes one, with all that a reader needs to correct the code.

They are made of names and lines only, which ``Store`` knows at the moment of the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NotRequired, TypedDict

from train_manager.telling.errors import (
    FixtureExists,
    FixtureNotFound,
    HookError,
    NoStageOpen,
    OrderError,
    StageError,
    did_you_mean,
)
from train_manager.telling.words import Provided, Words, fixture_of, suggestion


class Asked(TypedDict):
    """The arguments that all errors about a fixture or a stage have in common; the check knows no open stages."""

    name: str  # of the fixture or the stage
    asked_by: str  # the hook, provider or function
    asked_at: str  # its line, as ``file:line``
    stages: NotRequired[tuple[str, ...]]  # the open stages, outermost first


class Names(NamedTuple):
    """The names of fixtures at the moment of an error."""

    alive: Sequence[str]  # without the names that are always there
    always_there: frozenset[str]
    gone: Mapping[str, str]  # dead fixtures, each with the stage that it ended with
    is_hidden: bool  # a recursion has put the fixture that is asked for aside
    requests: tuple[str, ...]  # the lazy fixtures that are being computed, outermost first
    words: Words


def not_found_error(asked: Asked, does: str, names: Names) -> FixtureNotFound:
    """Make the error for a name that is not alive: its stage has ended, a recursion hides it, or it never was.

    Args:
        asked: the hook, provider or function that asks for it, and its line.
        does: "wants", "reads" or "modifies".
        names: the names that are alive, and others.
    """
    name, words = asked["name"], names.words
    there = {*names.alive, *names.always_there}  # only these are offered as names that may be meant
    nearest = list[str]()
    if names.is_hidden:  # alive in an outer stage of the same name, and put aside
        what = "which the inner stage of a recursion hides"
        cure = "it comes back when the inner stage ends; pass it on with `staged(name, {...})`"
    elif name in names.gone:  # it was alive: the cure is a stage in which it lives, or its summary at the end
        nearest = words.words_for(name, there)
        what = f"which ended with stage {names.gone[name]!r}"
        summary = words.summary_of(name, there)
        instead = f"; {summary}" if summary else ", or define it in a stage around both"
        cure = suggestion(nearest[0]) if nearest else f"ask for it inside stage {names.gone[name]!r}{instead}"
    else:  # it never was alive: misspelt, a word of another tool, or a fixture of an extension that was not added
        extension = words.extension_for(name)
        # Where such an extension could provide it, a dead fixture of a like name is not meant.
        could_have = extension is not None and extension.stage in asked["stages"]
        nearest = words.fixtures_meant(name, there) or words.fixtures_meant(name, () if could_have else names.gone)
        what = "which no open stage provides"
        cure = _cure(names.gone, nearest, extension)
    return FixtureNotFound(
        f"{asked['asked_by']} {does} {name!r}, {what}",
        requests=names.requests[:-1],  # the last entry is the provider that asks, which the first line names
        alive=names.alive,
        nearest=nearest,
        cure=cure,
        **asked,
    )


def _cure(gone: Mapping[str, str], nearest: Sequence[str], extension: Provided | None) -> str:
    """Return the cure for a name that never was alive."""
    if nearest:
        stage = gone.get(fixture_of(nearest[0]))
        return suggestion(nearest[0]) + (f" it lived in stage {stage!r}, which has closed" if stage else "")
    if extension is not None:
        return extension.cure
    return "no stage has defined it so far; a parameter with a default may be absent"


def shorter_lived_error(asked: Asked, stage: str, inner: str, names: Names) -> FixtureNotFound:
    """Make the error for a lazy fixture of a stage that asks for a fixture that ends earlier, with an inner stage."""
    return FixtureNotFound(
        f"{asked['asked_by']} lives as long as stage {stage!r}, "
        f"but wants {asked['name']!r}, which ends earlier, with stage {inner!r}",
        requests=names.requests[:-1],
        alive=names.alive,
        cure=f'provide it in the shorter-lived stage: @fixture("{inner}")',
        **asked,
    )


def cycle_error(asked: Asked, requests: Iterable[str]) -> OrderError:
    """Make the error for lazy fixtures that ask for each other, from one of them around to the same one."""
    what = f"{asked['asked_by']} asks for itself in a cycle"
    cure = "let one of them be computed without the others"
    return OrderError(what, requests=tuple(requests), cure=cure, **asked)


def exists_error(asked: Asked, stage: str, defined_at: str) -> FixtureExists:
    """Make the error for the definition of a name that is alive."""
    name = asked["name"]
    return FixtureExists(
        f"{asked['asked_by']} defines {name!r}, which stage {stage!r} has defined already",
        defined_at=defined_at,
        cure=f"to change it: fixtures.modify({name!r}, value); for a value of your own: another name",
        **asked,
    )


def reserved_error(asked: Asked) -> FixtureExists:
    """Make the error for a write of a name that is always there."""
    what = f"{asked['asked_by']} writes {asked['name']!r}, which is always there and cannot be written"
    return FixtureExists(what, cure="take another name", **asked)


def live_error(asked: Asked, own_name: str) -> FixtureExists:
    """Make the error for a modification of a fixture that is an attribute of the Extensible."""
    what = (
        f"{asked['asked_by']} modifies {asked['name']!r}, which is an attribute of the {own_name}, "
        "and cannot be written as a fixture"
    )
    return FixtureExists(what, cure=f"set the attribute of the {own_name}", **asked)


def no_stage_error(asked: Asked) -> NoStageOpen:
    """Make the error for a write with no stage open."""
    what = f"{asked['asked_by']} writes {asked['name']!r} while no stage is open"
    cure = "a fixture lives as long as its stage: write it inside `with self.staged(...):`"
    return NoStageOpen(what, cure=cure, **asked)


def not_open_error(asked: Asked, words: Words) -> StageError:
    """Make the error for a definition in a stage that is not open."""
    nearest = words.stages_meant(asked["name"], asked["stages"])
    what = f"{asked['asked_by']} defines a fixture in stage {asked['name']!r}, which is not open"
    return StageError(what, nearest=nearest, cure=did_you_mean(nearest), **asked)


def undeclared_error(asked: Asked, decorator: str) -> HookError:
    """Make the error for a write that a hook does not declare, although only declared writes are allowed."""
    what = f"{asked['asked_by']} writes {asked['name']!r} without declaring it, which `strict` refuses"
    return HookError(what, cure=f"declare it and return the value: {decorator}", **asked)


def other_thread_error(asked_by: str) -> StageError:
    """Make the error for another thread, in which perhaps a hook runs."""
    return StageError(
        "stages were touched by another thread than the one that opened them",
        asked_by=asked_by,
        cure="use one Extensible for each thread, or hand the values over as arguments",
    )
