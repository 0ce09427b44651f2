"""Code that runs beside the hooks: it sees other values of fixtures, no hook runs, and all is put back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import CodeType
from typing import Any

from train_manager.core.plan import Plan
from train_manager.core.providers import Provider, clean_up
from train_manager.core.scope import Cell, Scope
from train_manager.core.store import Store


@contextmanager
def beside_the_hooks(
    store: Store, scope: Scope, given: Mapping[str, Any], anew: Callable[[Cell], bool]
) -> Iterator[None]:
    """Give fixtures of an open stage other values for a ``with`` block, in which stages open without their hooks.

    The lazy fixtures of the stage are computed anew if they are asked for. Every fixture is put back as it was.

    Args:
        store: the state.
        scope: the stage.
        given: values of its fixtures.
        anew: returns whether a fixture of it is not alive until the block defines it.
    """
    with ExitStack() as stack:
        stack.callback(_put_back, store, _contents(store))
        store.bring_all()
        stack.callback(_clean_up, {one: _suspended(one) for one in store.scopes()})
        stack.enter_context(_without_hooks(store))
        kept = [cell for cell in scope.cells() if not (cell.name in given or _is_computed(cell) or anew(cell))]
        for cell in scope.cells():
            if cell not in kept:
                cell.empty()
        _link(scope, kept)
        scope.seldom = None  # which would bring the same values again
        for name, value in given.items():
            cell = store.cell(name)
            scope.own(cell, None)
            cell.value = value
        yield


def is_defined_in(cell: Cell, codes: frozenset[CodeType]) -> bool:
    """Return whether a line of one of these functions has defined the fixture."""
    return isinstance(cell.definer, tuple) and cell.definer[0] in codes


def _is_computed(cell: Cell) -> bool:
    return isinstance(cell.definer, Provider)


def _link(scope: Scope, cells: list[Cell]) -> None:
    """Let these be all fixtures of a stage, the newest first."""
    scope.first = None
    for cell in reversed(cells):
        cell.next, scope.first = scope.first, cell


@contextmanager
def _without_hooks(store: Store) -> Iterator[None]:
    plans, plan_of, running = store.plans, store.plan_of, store.running

    def bare(stage: str) -> Plan:
        plan: Plan = plan_of(stage)
        store.plans[stage] = replace(plan, around=(), pre=(), post=(), run_pre=None, run_post=None)
        return store.plans[stage]  # type: ignore[no-any-return]

    store.plans, store.plan_of, store.running = {}, bare, None
    try:
        yield
    finally:
        store.plans, store.plan_of, store.running = plans, plan_of, running


def _contents(store: Store) -> tuple[Any, ...]:
    cells = {cell: cell.content() for cell in store.cells.values()}
    return cells, {scope: (scope.first, scope.seldom) for scope in store.scopes()}


def _put_back(store: Store, contents: tuple[Any, ...]) -> None:
    cells, scopes = contents
    for cell in store.cells.values():
        cell.empty()
        if cell in cells:
            cell.restore(cells[cell])
    for scope, (first, seldom) in scopes.items():
        scope.first, scope.seldom = first, seldom


def _suspended(scope: Scope) -> int:
    return 0 if scope.extras is None else len(scope.extras.suspended)


def _clean_up(before: Mapping[Scope, int]) -> None:
    """Run the rest of the providers that were computed in the block, the last one first."""
    with ExitStack() as stack:
        for scope, count in before.items():
            for provider, generator in () if scope.extras is None else scope.extras.suspended[count:]:
                stack.callback(clean_up, provider, generator)
            if scope.extras is not None:
                del scope.extras.suspended[count:]
