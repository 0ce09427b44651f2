"""What runs at one stage, decided once: the extensions' hooks sorted into their places.

This is the place to make a stage cheap: a plan is compiled when a stage first opens and kept until an extension
comes or goes, so work done here is never done in a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from train_manager.core import dispatch
from train_manager.core.dispatch import CellOf, Run, Side
from train_manager.core.errors import StageError
from train_manager.core.hooks import EVERY_STAGE, Hook
from train_manager.core.order import in_order, refuse_two_providers
from train_manager.core.providers import Provider, chosen
from train_manager.core.scope import Cell, Place
from train_manager.core.state import State


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What runs at one stage.

    Attributes:
        around: around-hooks, in the order they enter.
        pre: pre hooks in their order.
        post: post hooks in theirs.
        providers: of this stage's own fixtures on demand, by name.
        on_demand: of those of all stages.
        sides: what runs before the body, and after it.
        run_pre: runs the first side; None where there is nothing to run.
        run_post: runs the second.
    """

    around: tuple[Hook, ...]
    pre: tuple[Hook, ...]
    post: tuple[Hook, ...]
    providers: Mapping[str, Provider]
    on_demand: Mapping[str, Provider]
    sides: tuple[Side, Side]
    run_pre: Run | None
    run_post: Run | None


def compile_plan(
    stage: str,
    hooks: Iterable[Hook],
    providers: Mapping[str, Mapping[str, Provider]],
    cell_of: CellOf = Cell,
    promised: Iterable[str] = (),
    is_timed: bool = False,
) -> Plan:
    """Sort out what belongs to this stage.

    Args:
        stage: the stage's name.
        hooks: all hooks, in the order of registration.
        providers: the provider of each fixture's name, by stage.
        cell_of: finds the places of fixtures.
        is_timed: the time of the hooks is added up.
        promised: what open stages provide on demand, also of providers that have been removed since.

    Raises:
        OrderError: nothing orders two hooks that must be ordered.
    """
    on_demand = _together(providers)
    around, pre, post = ordered(stage, hooks, on_demand)
    own, computed = providers.get(stage, {}), {*on_demand, *promised}  # which a side has at hand
    gates = tuple(gate for hook in around + pre + post for gate, _ in hook.gates)
    sides = (
        Side(f"pre_{stage}", around + pre, computed, bool(own), gates, is_timed),
        Side(f"post_{stage}", post, computed, is_timed=is_timed),
    )
    run_pre, run_post = (dispatch.compiled(it, cell_of) if it else None for it in sides)
    return Plan(around, pre, post, own, on_demand, sides, run_pre, run_post)


def ordered(stage: str, hooks: Iterable[Hook], on_demand: Mapping[str, Provider]) -> list[tuple[Hook, ...]]:
    """The around-, pre and post hooks of a stage, in the order they run.

    Raises:
        OrderError: nothing orders two hooks that must be ordered.
    """
    here = [hook for hook in hooks if hook.stage in (stage, EVERY_STAGE)]
    return [in_order([hook for hook in here if hook.side == which], on_demand) for which in ("around", "pre", "post")]


def _together(providers: Mapping[str, Mapping[str, Provider]]) -> dict[str, Provider]:
    return {name: provider for in_stage in providers.values() for name, provider in in_stage.items()}


@final
class Plans:
    """The plan of every stage, by its name; compiled at the first look-up, and kept at the stage's place."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._hooks: tuple[Hook, ...] = ()
        self._providers: Mapping[str, Mapping[str, Provider]] = {}

    def use(self, hooks: Iterable[Hook], providers: Iterable[Provider]) -> None:
        """Take these from the next stage on; a stage that is open keeps its plan to its end.

        Raises:
            OrderError: they cannot be ordered, or provide a fixture twice; then nothing has changed.
        """
        hooks = tuple(hooks)
        chosen_providers = chosen(list(providers))
        refuse_two_providers(hooks, chosen_providers)
        on_demand = _together(chosen_providers)
        for stage in {hook.stage for hook in hooks}:  # hooks of every stage meet each other too
            ordered(stage, hooks, on_demand)
        self._hooks, self._providers = hooks, chosen_providers
        for place in self._state.places.values():
            place.plan = place.stage = None
        self._state.forget_definers()  # hooks that are gone may be among them

    def __getitem__(self, stage: str) -> Plan:
        place = self.place_of(stage)
        if place.plan is None:
            place.plan = compile_plan(
                stage, self._hooks, self._providers, self._state.pinned, self._state.promised, self._state.times_hooks
            )
        plan: Plan = place.plan
        return plan

    def place_of(self, stage: str) -> Place:
        """The place of a stage, made if it is the first time.

        Raises:
            StageError: no stage can have this name.
        """
        _refuse_name(stage)
        return self._state.places.setdefault(stage, Place())


def _refuse_name(stage: str) -> None:
    if stage == EVERY_STAGE:
        what = "a stage cannot be called 'stage', the name of the hooks of every stage"
    elif not (isinstance(stage, str) and stage.isidentifier()):
        what = f"a stage cannot be called {stage!r}: hooks are named after it, so it must be an identifier"
    else:
        return
    raise StageError(what, name=str(stage), cure="take another name, like 'train_step_batch'")
