"""What becomes of a hook's return value: the fixtures that it declares to provide or to modify."""

from __future__ import annotations

from typing import Any, NoReturn

from train_manager.core import refusals
from train_manager.core.errors import HookError
from train_manager.core.hook import Hook
from train_manager.core.marks import Write
from train_manager.core.scope import Scope
from train_manager.core.store import Store


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
        raise refusals.not_open(store, target.stage, hook)
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
