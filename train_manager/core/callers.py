"""What runs around a hook: an around-hook is entered and left, a return value goes to the fixtures it declares."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn

from train_manager.core import messages
from train_manager.core.decorators import Write
from train_manager.core.errors import HookError
from train_manager.core.hooks import Hook
from train_manager.core.scope import Scope
from train_manager.core.store import Store

Suspended = Generator[None, None, None]
"""An around-hook that waits at its yield while the stage runs."""


def enter(hook: Hook, generator: Suspended) -> None:
    """Run the part before the yield.

    Raises:
        HookError: it never yields, or is no generator at all, because ``@contextmanager`` has wrapped it.
    """
    if not isinstance(generator, Generator):
        raise _misused(hook, f"made a {type(generator).__name__}, which is no generator")
    try:
        next(generator)
    except StopIteration:
        raise _misused(hook, "did not yield, so the stage would never run") from None


def leave(hook: Hook, generator: Suspended, error: BaseException | None) -> None:
    """Run the part after the yield; where the stage failed, its error is raised at the yield.

    The hook may clean up after the error, not swallow it: the stage raises it whatever the hook does.

    Raises:
        HookError: it yields again.
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
        wrapped = isinstance(error, StopIteration) and raised.__cause__ is error  # generators do that to it
        if raised is error or wrapped:
            raise StopIteration from None
        raise
    finally:
        error.__traceback__ = traceback  # without the hook's frames, which would pile up


def _misused(hook: Hook, wrong: str) -> HookError:
    return HookError(
        f"{hook.label} {wrong}",
        name=hook.label,
        asked_by=hook.label,
        asked_at=hook.call.defined_at,
        cure="an around-hook has one bare `yield`, where the stage runs, and no @contextmanager",
    )


def write(store: Store, hook: Hook, scope: Scope, returned: Any) -> None:
    """Hand what a hook returned to the fixtures it declares.

    Args:
        store: where the fixtures live.
        hook: whose value it is.
        scope: the hooked stage.
        returned: one value, or a tuple where several names are declared.

    Raises:
        HookError: it is no tuple of that length, or None where a fixture was to be modified.
    """
    values = (returned,) if len(hook.writes) == 1 else returned
    if not isinstance(values, tuple) or len(values) != len(hook.writes):
        names = ", ".join(hook.written)
        _refuse(hook, f"returned {_described(returned)} for ({names})", f"return a tuple: return {names}")
    for target, value in zip(hook.writes, values, strict=True):
        if target.defines:
            store.provide(target.name, value, _owner(store, hook, scope, target), hook)
        elif value is None:
            _refuse(hook, f"returned None for {target.name!r}, which it modifies", "return the new value")
        else:
            store.modify(target.name, value, hook)


def _owner(store: Store, hook: Hook, scope: Scope, target: Write) -> Scope:
    if target.stage is None:
        return scope
    owner = store.scope_of(target.stage)
    if owner is None:
        raise messages.not_open(store, target.stage, hook)
    return owner


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "None" if value is None else f"one {type(value).__name__}"


def _refuse(hook: Hook, wrong: str, cure: str) -> NoReturn:
    raise HookError(
        f"{hook.label} {wrong}",
        name=hook.writes[0].name,
        asked_by=hook.label,
        asked_at=hook.call.defined_at,
        cure=cure,
    )
