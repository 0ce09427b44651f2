"""A block that runs beside the hooks: in a second opening of a stage, without hooks, whose fixtures all die with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

from train_manager.core.plan import Plan
from train_manager.core.providers import Provider
from train_manager.core.store import Store


@contextmanager
def beside_the_hooks(store: Store, stage: str, given: Mapping[str, Any], anew: Collection[str]) -> Iterator[None]:
    """Open an open stage once more for a ``with`` block, in which it and all other stages open without their hooks.

    The lazy fixtures of the stage are computed anew if the block asks for them; its other fixtures keep their values.
    All fixtures of the stage are put back at the end.

    Args:
        store: the state of the Extensible that has opened the stage.
        stage: the name of the stage.
        given: fixtures of the stage that have other values.
        anew: fixtures, and methods with all that they have defined, that are not alive until the block defines them.
    """
    extensible = store.value("extensible")
    store.bring_all()  # `cells` below lists only fixtures whose cell is written, and none that waits
    # A fixture that a method in `anew` has defined is known by its definer, the code of the method. It stays out of the
    # second opening too: the method runs again in the block, and a second definition would be refused.
    methods = [vars(kind).get(name) for kind in type(extensible).__mro__ for name in anew]
    codes = {method.__code__ for method in methods if isinstance(method, FunctionType)}
    kept = {
        cell.name: cell.value
        for cell in store.open[stage].cells()
        if cell.compute is None and not isinstance(cell.definer, Provider) and cell.name not in anew
        if not (isinstance(cell.definer, tuple) and cell.definer[0] in codes)
    }
    with _without_hooks(store), extensible.staged(stage) as opened:
        here = beside_the_hooks.__code__, 0  # the definer that an error about these fixtures names
        for name, value in {**kept, **given}.items():
            if store.has(name):  # a lazy fixture that a hook has modified: its provider offers it in this opening too
                store.modify(name, value, here)
            else:
                store.define(name, value, opened, here)
        yield


@contextmanager
def _without_hooks(store: Store) -> Iterator[None]:
    """Let stages open without hooks for a ``with`` block: each plan is replaced by a copy that has none."""
    plans, plan_of, running = store.plans, store.plan_of, store.running
    bare: dict[str, Any] = {}

    def bare_plan(stage: str) -> Plan:
        store.plans = plans  # `plan_of` reads and fills `store.plans`: it must never meet, or keep, a bare plan
        bare[stage] = replace(plan_of(stage), around=(), pre=(), post=(), run_pre=None, run_post=None)
        store.plans = bare
        return bare[stage]  # type: ignore[no-any-return]

    # `running` is None for the block, which may be a part of a hook: while a hook runs, no stage may open.
    store.plans, store.plan_of, store.running = bare, bare_plan, None
    try:
        yield
    finally:
        store.plans, store.plan_of, store.running = plans, plan_of, running
