"""The words for what is refused: each function makes one error, with all that a reader needs to mend it."""

from __future__ import annotations

from train_manager.core.errors import (
    FixtureExists,
    FixtureNotFound,
    HookError,
    NoStageOpen,
    StageError,
    did_you_mean,
    near,
)
from train_manager.core.locations import line_of
from train_manager.core.scope import Caller, Definer, Scope
from train_manager.core.state import State


def who(definer: Definer) -> str:
    """The function that holds a line, or the hook."""
    return definer[0].co_qualname if isinstance(definer, tuple) else definer.label


def where(definer: Definer) -> str:
    """``file:line`` of a line, or of the hook's definition."""
    return line_of(definer) if isinstance(definer, tuple) else str(definer.call.defined_at)


def not_found(state: State, name: str, who_does: str, asked_at: str) -> FixtureNotFound:
    """For a name that is not alive: its stage took it along, a recursion hides it, or it never was."""
    alive = state.names()
    nearest = near(name, {*alive, *state.gone})
    stage = state.ended_with(name)
    if state.hidden(name) is not None:
        what = "which the inner stage of a recursion hides"
        cure = "it is back when the inner stage ends; hand it down with `staged(name, {...})`"
    elif stage is not None:
        what = f"which ended with stage {stage!r}"
        cure = f"ask for it inside stage {stage!r}, or define it in a stage around both"
    else:
        what = "which no open stage provides"
        cure = _nearest(state, nearest)
    return FixtureNotFound(
        f"{who_does} {name!r}, {what}",
        name=name,
        asked_by=who_does.rpartition(" ")[0],
        asked_at=asked_at,
        requests=state.requests[:-1],  # the last one is the asker itself
        stages=state.path,
        alive=alive,
        nearest=nearest,
        cure=cure,
    )


def shorter_lived(state: State, name: str, owner: Scope, scope: Scope, caller: Caller) -> FixtureNotFound:
    """For a provided fixture that asks for what dies before it."""
    return FixtureNotFound(
        f"{caller.label} lives as long as stage {scope.name!r} and wants {name!r}, "
        f"which lives shorter, in stage {owner.name!r}",
        name=name,
        asked_by=caller.label,
        asked_at=where(caller),
        requests=state.requests[:-1],
        stages=state.path,
        alive=state.names(),
        cure=f'provide it in the shorter-lived stage: @fixture("{owner.name}")',
    )


def exists(state: State, name: str, definer: Definer) -> FixtureExists:
    """For a name that is alive, or always there."""
    if name in state.always_there:
        return reserved(state, name, definer)
    there = state.hidden(name) or state.cells[name]
    first: Definer = there.definer or there.owner.opened_at
    return FixtureExists(
        f"{who(definer)} defines {name!r}, which stage {there.stage!r} has defined already",
        name=name,
        asked_by=who(definer),
        asked_at=where(definer),
        defined_at=where(first),
        stages=state.path,
        cure=f"to change it: fixtures.modify({name!r}, value); for a value of your own: another name",
    )


def reserved(state: State, name: str, definer: Definer) -> FixtureExists:
    """For a name that is always there."""
    return FixtureExists(
        f"{who(definer)} writes {name!r}, which is always there and cannot be written",
        name=name,
        asked_by=who(definer),
        asked_at=where(definer),
        stages=state.path,
        cure="take another name",
    )


def no_stage(state: State, name: str, definer: Definer) -> NoStageOpen:
    """For a write with no stage open."""
    return NoStageOpen(
        f"{who(definer)} writes {name!r} while no stage is open",
        name=name,
        asked_by=who(definer),
        asked_at=where(definer),
        stages=state.path,
        cure="a fixture lives as long as its stage: write it inside `with self.staged(...):`",
    )


def not_open(state: State, stage: str, definer: Definer) -> StageError:
    """For a definition in a stage that is not open."""
    nearest = near(stage, state.path)
    return StageError(
        f"{who(definer)} defines a fixture in stage {stage!r}, which is not open",
        name=stage,
        asked_by=who(definer),
        asked_at=where(definer),
        stages=state.path,
        nearest=nearest,
        cure=did_you_mean(nearest),
    )


def undeclared(state: State, name: str, caller: Caller, site: Definer) -> HookError:
    """For a write that a hook does not declare, where only declared ones are allowed."""
    mark = "modifies" if state.has(name) else "provides"
    return HookError(
        f"{caller.label} writes {name!r} without declaring it, which `strict` refuses",
        name=name,
        asked_by=caller.label,
        asked_at=where(site),
        stages=state.path,
        cure=f'declare it and return the value: @{mark}("{name}")',
    )


def other_thread(state: State) -> StageError:
    """For another thread or task."""
    return StageError(
        "stages were touched by another thread or task than the one that opened them",
        asked_by=state.running.label if state.running is not None else "",
        cure="use one Extensible for each thread or task, or hand the values over as arguments",
    )


def _nearest(state: State, nearest: tuple[str, ...]) -> str:
    if not nearest:
        return "no stage has defined it so far; a parameter with a default may be absent"
    gone = not state.has(nearest[0])
    lived = f" it lived in stage {state.ended_with(nearest[0])!r}, which has closed" if gone else ""
    return did_you_mean(nearest) + lived
