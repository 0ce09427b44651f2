"""The call of a hook beyond the function: an around-hook is entered and left; a return value is written to fixtures."""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any, NoReturn

from train_manager.core.hooks import AROUND_CURE, Hook
from train_manager.core.scope import Scope
from train_manager.core.store import Store
from train_manager.telling.errors import HookError

Suspended = Generator[None, None, None]
"""An around-hook that waits at its yield while the stage runs."""


def enter(hook: Hook, generator: Suspended) -> None:
    """Run the part before the yield."""
    if not isinstance(generator, Generator):  # @contextmanager has wrapped the hook
        raise _misused(hook, f"returned a {type(generator).__name__}, which is not a generator")
    try:
        next(generator)
    except StopIteration:
        raise _misused(hook, "did not yield, so the stage would never run") from None


def is_waiting(generator: Any, *, is_known: bool = True) -> bool:
    """Return whether an around-hook, or a fixture, has still to go on; ``is_known`` if its class does not tell."""
    if isinstance(generator, GeneratorType):
        return generator.gi_frame is not None
    return is_known and isinstance(generator, Generator)


def leave(hook: Hook, generator: Suspended, error: BaseException | None) -> None:
    """Run the part after the yield; if the stage has failed, raise its error at the yield.

    The hook may clean up after the error, but not swallow it: the stage raises it whatever the hook does.
    """
    try:
        if error is None:
            next(generator)
        else:
            _throw(generator, error)
    except StopIteration:
        return
    generator.close()
    raise _misused(hook, "yields more than once")


def _throw(generator: Suspended, error: BaseException) -> None:
    traceback = error.__traceback__
    try:
        generator.throw(error)
    except BaseException as raised:
        wrapped = isinstance(error, StopIteration) and raised.__cause__ is error  # as generators do
        if raised is error or wrapped:
            raise StopIteration from None
        raise
    finally:
        error.__traceback__ = traceback  # without the hook's frames, which would pile up


def _misused(hook: Hook, wrong: str) -> HookError:
    return hook.call.error(wrong, hook.label, AROUND_CURE)


def write(store: Store, hook: Hook, scope: Scope, returned: Any) -> None:
    """Write the return value of a hook, a tuple for several names, to the fixtures that it declares."""
    values = (returned,) if len(hook.writes) == 1 else returned
    if not isinstance(values, tuple) or len(values) != len(hook.writes):
        names = ", ".join(hook.written)
        wrong, cure = f"returned {_described(returned)} for ({names})", f"return a tuple: return {names}"
        raise hook.call.error(wrong, hook.writes[0].name, cure)
    for target, value in zip(hook.writes, values, strict=True):
        if target.defines:
            owner = scope if target.stage is None else store.require_open(target.stage, hook)
            store.provide(target.name, value, owner, hook)
        elif value is None:
            wrong = f"returned None for {target.name!r}, which it modifies"
            raise hook.call.error(wrong, hook.writes[0].name, "return the new value")
        else:
            store.modify(target.name, value, hook)


def refuse_return(hook: Hook) -> NoReturn:
    """Refuse the return value of a hook that declares no write: it would be lost."""
    cure = 'declare what it writes: @provides("name") or @modifies("name") above the hook; or drop the return'
    raise hook.call.error("returned a value that it does not declare", hook.label, cure)


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "None" if value is None else f"one {type(value).__name__}"
