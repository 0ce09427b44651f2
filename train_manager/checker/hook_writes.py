"""The fixtures that a hook writes beside those it declares, read from its source."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType

from train_manager.checker.method_source import ANYTHING
from train_manager.checker.methods import Methods
from train_manager.checker.outline import (
    Defines,
    Item,
    Later,
    Names,
    Opens,
    Outline,
    Touches,
    Unknown,
    body_of,
)
from train_manager.core.hooks import Hook

OpenStages = frozenset[str | None]


def find_definitions(hook: Hook, loop: Methods) -> list[tuple[Names, str | None]]:
    """Return the names that a hook defines in stages that it does not open itself, each set with its stage.

    The stage is None for the innermost one.

    Args:
        hook: the hook.
        loop: the methods of the object whose stages it runs at.
    """
    found: list[tuple[Names, str | None]] = []
    for item, opened in _items(hook, loop):
        # A fixture of a stage that the hook opens itself dies with that stage, inside of the hook.
        if isinstance(item, Defines) and (item.stage not in opened if item.stage else not opened):
            found.append((item.names, item.stage))
        elif isinstance(item, Unknown) and not opened:
            found.append((frozenset({ANYTHING}), None))
    # The parameters through which a hook can write any fixture: the fixtures, and the object itself.
    doors = {"fixtures", "extensible", loop.owner._options.own_name}  # type: ignore[attr-defined]
    if not hook.owner or doors & {*hook.call.parameters}:  # a hook of the Extensible itself has `self.fixtures`
        return found
    # Without a door, the hook can write only through an Extensible in an attribute of the extension, which may be any
    # object with such methods: only names that are written in the source count.
    return [(names, stage) for names, stage in found if ANYTHING not in names]


def find_modifications(hook: Hook, loop: Methods) -> Names:
    """Return the names that a hook modifies through ``fixtures``."""
    touched = (item.names for item, _ in _items(hook, loop) if isinstance(item, Touches) and item.modifies)
    return frozenset().union(*touched)


def _items(hook: Hook, loop: Methods) -> Iterator[tuple[Item, OpenStages]]:
    """Yield the items of a hook and of the methods that it calls, each with the stages opened around it on the way."""
    bound = hook.call.function
    function = inspect.unwrap(getattr(bound, "__func__", bound))
    if not isinstance(function, FunctionType):  # in C: it has no source
        return
    methods = loop.of_extension(type(getattr(bound, "__self__", None)))
    yield from ((Unknown(what), frozenset()) for what in methods.unread)
    seen: set[tuple[FunctionType, OpenStages]] = {(function, frozenset())}
    ahead: list[tuple[FunctionType, Outline, OpenStages]] = [(function, methods.outline(function), frozenset())]
    while ahead:  # not by recursion: methods that all call each other go deep
        caller, outline, opened = ahead.pop()
        for item in outline:
            ahead.append((caller, body_of(item), opened | {item.stage} if isinstance(item, Opens) else opened))
            # A function inside of a hook counts where it stands.
            unknown = None if isinstance(item, Later) else methods.unknown_in(item, caller)
            yield unknown or item, opened
            called = methods.followed(item, caller)
            if called is not None and (called, opened) not in seen:
                seen.add((called, opened))
                ahead.append((called, methods.outline(called), opened))
