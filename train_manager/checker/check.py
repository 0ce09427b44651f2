"""The check of a class: one error with all mistakes in its hooks, or a list of code that it could not follow."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial

from train_manager.checker.left_out import call_left_out
from train_manager.checker.lookalikes import find_lookalikes, warn_of_idle
from train_manager.checker.methods import Methods
from train_manager.checker.mistakes import HookMistakes, find_unopened
from train_manager.checker.walk import stage_tree
from train_manager.core.extensible import Extensible
from train_manager.core.hooks import Hook
from train_manager.core.order import choose_providers
from train_manager.core.registry import Registry
from train_manager.core.store import Options
from train_manager.telling.errors import CheckError, did_you_mean, near


def check(
    owner: type[Extensible],
    registry: Registry,
    entry: str | None,
    found_when: str,
    *,
    known: Iterable[str],
    options: Options,
    strict: bool,
    outside: bool,
) -> tuple[list[Hook], list[str]]:
    """Read the source of a class and compare the hooks of its extensions with it.

    Args:
        owner: a subclass of Extensible.
        registry: its hooks and providers.
        entry: the method that the run is entered by; None for all methods that no other method calls.
        found_when: ends the first line of the error.
        known: names of the fixtures that need no stage.
        options: of the class; has the words of other tools, and the points at which a fixture is modified too late.
        strict: hooks may write only what they declare.
        outside: code outside of the class may open stages and define fixtures too; then of unknown names only those
            like a known one are mistakes.

    Returns:
        The hooks whose stage is not in the source, and descriptions of the code that the check could not follow.

    Raises:
        CheckError: with all mistakes.
        ValueError: the class has no method ``entry``.
    """
    _require_method(owner, entry)
    plan_of = registry.plans.__getitem__
    # Stages must exist in the whole class; fixtures must be alive in the run that is entered.
    methods = Methods(owner)
    whole = stage_tree(methods, plan_of)
    entered = whole if entry is None else stage_tree(methods, plan_of, entry)
    providers = [
        provider for in_stage in choose_providers(registry.providers).values() for provider in in_stage.values()
    ]
    left_out = partial(call_left_out, methods, plan_of=plan_of)
    search = HookMistakes(
        methods, whole, entered, providers, frozenset(known), options.words, options.too_late, left_out
    )
    extensions = registry.extensions
    hooks = [hook for hook in registry.hooks if not hook.owner or extensions[hook.owner]._checked_before_run]
    found = list(search.of(hooks, strict=strict, outside=outside))
    if outside:  # code outside of the class may open stages and define fixtures that the class does not
        found = [mistake for mistake in found if search.is_of_a_known_name(mistake)]
    found += find_lookalikes(owner, map(type, registry.extensions.values()), whole, options.words)
    if found:
        count = f"{len(found)} mistakes" if len(found) > 1 else "a mistake"
        raise CheckError(f"{count} in the hooks of {owner.__name__}, found {found_when}", found)
    warn_of_idle(registry.idle)
    elsewhere = ["stages opened outside of this class"] if outside else []
    return find_unopened(hooks, whole), [*entered.unknown, *elsewhere]


def _require_method(owner: type[Extensible], name: str | None) -> None:
    if name is not None and not inspect.isfunction(getattr(owner, name, None)):
        methods = [other for other, _ in inspect.getmembers_static(owner, inspect.isfunction)]
        cure = did_you_mean(near(name, methods)) or "give the method that a run is entered by"
        raise ValueError(f"{owner.__name__} has no method {name!r}: {cure}")
