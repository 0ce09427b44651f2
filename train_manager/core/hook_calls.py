"""The work around the call of a hook: around-hooks are entered and left, return values are written to fixtures."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn

from train_manager.core.hooks import AROUND_CURE, Hook
from train_manager.core.scope import Scope
from train_manager.core.store import Store
from train_manager.telling.errors import HookError

Suspended = Generator[None, None, None]
"""An around-hook that waits at its yield while the stage runs."""


def enter(hook: Hook, generator: Suspended, suspended: list[tuple[Any, Any]]) -> None:
    """Run an around-hook to its ``yield``, and note it among those that wait there."""
    if not isinstance(generator, Generator):  # as of a hook below @contextmanager
        raise _misuse_error(hook, f"returned a {type(generator).__name__}, which is not a generator")
    # Before it runs: if Ctrl-C comes as it reaches its `yield`, the rest of the hook must still run at the end.
    suspended.append((hook, generator))
    try:
        next(generator)
    except StopIteration:
        raise _misuse_error(hook, "did not yield, so the stage would never run") from None


def leave(hook: Hook, generator: Suspended, error: BaseException | None) -> None:
    """Run the rest of an around-hook after its ``yield``, at which the error of a failed stage is raised.

    The hook may clean up after the error, but cannot swallow it: the stage raises it whatever the hook does.
    """
    try:
        if error is None:
            next(generator)
        else:
            _throw(generator, error)
    except StopIteration:  # the hook has ended, as it must
        return
    generator.close()
    raise _misuse_error(hook, "yields more than once")


def _throw(generator: Suspended, error: BaseException) -> None:
    """Raise an error at the ``yield`` of a hook; a StopIteration says that the hook let the error through."""
    traceback = error.__traceback__
    try:
        generator.throw(error)
    except BaseException as raised:
        # A generator turns a StopIteration that leaves it into a RuntimeError (PEP 479), which is not the hook's error.
        wrapped = isinstance(error, StopIteration) and raised.__cause__ is error
        if raised is error or wrapped:
            raise StopIteration from None
        raise
    finally:
        error.__traceback__ = traceback  # each around-hook that passes the error on would add its frames


def _misuse_error(hook: Hook, wrong: str) -> HookError:
    return hook.call.error(wrong, hook.label, AROUND_CURE)


def write(store: Store, hook: Hook, scope: Scope, returned: Any) -> None:
    """Write the return value of a hook, a tuple for several names, to the fixtures that it declares."""
    values = (returned,) if len(hook.writes) == 1 else returned  # one fixture may itself be a tuple
    if not isinstance(values, tuple) or len(values) != len(hook.writes):
        names = ", ".join(hook.written)
        wrong, cure = f"returned {_describe(returned)} for ({names})", f"return a tuple: return {names}"
        raise hook.call.error(wrong, hook.writes[0].name, cure)
    for target, value in zip(hook.writes, values, strict=True):
        if target.defines:
            owner = scope if target.stage is None else store.require_open(target.stage, hook)
            store.provide(target.name, value, owner, hook)
        elif value is None:  # the hook has no `return`: most likely it was forgotten
            wrong = f"returned None for {target.name!r}, which it modifies"
            raise hook.call.error(wrong, hook.writes[0].name, "return the new value")
        else:
            store.modify(target.name, value, hook)


def refuse_return(hook: Hook) -> NoReturn:
    """Refuse the return value of a hook that declares no write: it would be lost."""
    cure = 'declare what it writes: @provides("name") or @modifies("name") above the hook; or drop the return'
    raise hook.call.error("returned a value that it does not declare", hook.label, cure)


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "None" if value is None else f"one {type(value).__name__}"
