"""The errors about fixtures and stages: each function makes one, with all that a reader needs to correct the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from train_manager.core.scope import Caller, Definer, Scope
from train_manager.core.state import State
from train_manager.telling.errors import (
    FixtureExists,
    FixtureNotFound,
    HookError,
    NoStageOpen,
    StageError,
    did_you_mean,
)
from train_manager.telling.source_locations import line_of
from train_manager.telling.words import Provided, fixture_of, suggestion


def who(definer: Definer) -> str:
    """Return the name of the hook or provider, or of the function that holds the line."""
    return definer[0].co_qualname if isinstance(definer, tuple) else definer.label


def where(definer: Definer) -> str:
    """Return the line, or the line at which the hook is defined, as ``file:line``."""
    return line_of(definer) if isinstance(definer, tuple) else str(definer.call.defined_at)


def error_data(state: State, name: str, definer: Definer) -> dict[str, Any]:
    """Return the arguments that all errors about a fixture have in common."""
    return {"name": name, "asked_by": who(definer), "asked_at": where(definer), "stages": state.path}


def not_found_error(state: State, name: str, who_does: str, asked_at: str) -> FixtureNotFound:
    """Make the error for a name that is not alive: its stage has ended, a recursion hides it, or it never was."""
    alive = state.names()
    there = {*alive, *state.always_there}  # only these are offered as names that may be meant
    stage = state.former_stage(name)
    words, nearest = state.options.words, list[str]()
    if state.find_hidden(name) is not None:  # alive in an outer stage of the same name, and put aside
        what = "which the inner stage of a recursion hides"
        cure = "it comes back when the inner stage ends; pass it on with `staged(name, {...})`"
    elif stage is not None:  # it was alive: the cure is a stage in which it lives, or its summary at the end
        nearest = words.words_for(name, there)
        what = f"which ended with stage {stage!r}"
        summary = words.summary_of(name, there)
        instead = f"; {summary}" if summary else ", or define it in a stage around both"
        cure = suggestion(nearest[0]) if nearest else f"ask for it inside stage {stage!r}{instead}"
    else:  # it never was alive: misspelt, a word of another tool, or a fixture of an extension that was not added
        extension = words.extension_for(name)
        # Where such an extension could provide it, a dead fixture of a like name is not meant.
        could_have = extension is not None and extension.stage in state.path
        nearest = words.fixtures_meant(name, there) or words.fixtures_meant(name, () if could_have else state.gone)
        what = "which no open stage provides"
        cure = _cure(state, nearest, extension)
    return FixtureNotFound(
        f"{who_does} {name!r}, {what}",
        name=name,
        asked_by=who_does.rpartition(" ")[0],
        asked_at=asked_at,
        requests=state.requests[:-1],  # the last entry is the provider that asks, which the first line names
        stages=state.path,
        alive=alive,
        nearest=nearest,
        cure=cure,
    )


def _cure(state: State, nearest: Sequence[str], extension: Provided | None) -> str:
    """Return the cure for a name that never was alive."""
    if nearest:
        gone = state.former_stage(fixture_of(nearest[0]))
        return suggestion(nearest[0]) + (f" it lived in stage {gone!r}, which has closed" if gone else "")
    if extension is not None:
        return extension.cure
    return "no stage has defined it so far; a parameter with a default may be absent"


def shorter_lived_error(state: State, name: str, owner: Scope, scope: Scope, caller: Caller) -> FixtureNotFound:
    """Make the error for a lazy fixture that asks for a fixture that dies before it."""
    return FixtureNotFound(
        f"{caller.label} lives as long as stage {scope.name!r}, "
        f"but wants {name!r}, which ends earlier, with stage {owner.name!r}",
        requests=state.requests[:-1],
        alive=state.names(),
        cure=f'provide it in the shorter-lived stage: @fixture("{owner.name}")',
        **error_data(state, name, caller),
    )


def exists_error(state: State, name: str, definer: Definer) -> FixtureExists:
    """Make the error for the definition of a name that is alive, or always there."""
    if name in state.always_there:
        return reserved_error(state, name, definer)
    there = state.find_hidden(name) or state.cells[name]  # put aside by a recursion, or alive
    return FixtureExists(
        f"{who(definer)} defines {name!r}, which stage {there.stage!r} has defined already",
        defined_at=where(there.definer or there.owner.opened_at),  # no definer: the line that opened the stage
        cure=f"to change it: fixtures.modify({name!r}, value); for a value of your own: another name",
        **error_data(state, name, definer),
    )


def reserved_error(state: State, name: str, definer: Definer) -> FixtureExists:
    """Make the error for a write of a name that is always there."""
    what = f"{who(definer)} writes {name!r}, which is always there and cannot be written"
    return FixtureExists(what, cure="take another name", **error_data(state, name, definer))


def live_error(state: State, name: str, definer: Definer) -> FixtureExists:
    """Make the error for a modification of a fixture that is an attribute of the Extensible."""
    own = state.options.own_name
    what = f"{who(definer)} modifies {name!r}, which is an attribute of the {own}, and cannot be written as a fixture"
    return FixtureExists(what, cure=f"set the attribute of the {own}", **error_data(state, name, definer))


def no_stage_error(state: State, name: str, definer: Definer) -> NoStageOpen:
    """Make the error for a write with no stage open."""
    what = f"{who(definer)} writes {name!r} while no stage is open"
    cure = "a fixture lives as long as its stage: write it inside `with self.staged(...):`"
    return NoStageOpen(what, cure=cure, **error_data(state, name, definer))


def not_open_error(state: State, stage: str, definer: Definer) -> StageError:
    """Make the error for a definition in a stage that is not open."""
    nearest = state.options.words.stages_meant(stage, state.path)
    what = f"{who(definer)} defines a fixture in stage {stage!r}, which is not open"
    return StageError(what, nearest=nearest, cure=did_you_mean(nearest), **error_data(state, stage, definer))


def undeclared_error(state: State, name: str, caller: Caller, site: Definer) -> HookError:
    """Make the error for a write that a hook does not declare, although only declared writes are allowed."""
    decorator = "modifies" if state.has(name) else "provides"
    return HookError(
        f"{caller.label} writes {name!r} without declaring it, which `strict` refuses",
        cure=f'declare it and return the value: @{decorator}("{name}")',
        **{**error_data(state, name, site), "asked_by": caller.label},
    )


def other_thread_error(state: State) -> StageError:
    """Make the error for another thread."""
    return StageError(
        "stages were touched by another thread than the one that opened them",
        asked_by=state.running.label if state.running is not None else "",
        cure="use one Extensible for each thread, or hand the values over as arguments",
    )
