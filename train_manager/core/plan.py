"""What runs at one stage, decided once: the hooks of all extensions, sorted.

A plan is made when a stage first opens, and kept until an extension comes or goes. So work that is done here is not
done in a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast, final
from unicodedata import normalize
from weakref import ref

from train_manager.core.dispatch import CellOf, HookSequence, Run
from train_manager.core.hooks import EVERY_STAGE, KINDS, Hook
from train_manager.core.order import in_order, refuse_two_providers
from train_manager.core.providers import LazyFixture, Provider, chosen
from train_manager.core.scope import Cell
from train_manager.core.store import Store
from train_manager.telling.errors import StageError


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What runs at one stage.

    Attributes:
        around: around-hooks, in the order they enter.
        pre: pre hooks in their order.
        post: post hooks in theirs.
        providers: of the stage's own lazy fixtures, by name.
        own_lazy: the lazy fixtures themselves, by name.
        own_cells: their cells.
        contested: names of its own that another stage provides.
        lazy: providers of the lazy fixtures of all stages.
        sequences: the hooks before the body, and those after it.
        run_pre: calls the first sequence; None if it is empty.
        run_post: calls the second.
    """

    around: tuple[Hook, ...]
    pre: tuple[Hook, ...]
    post: tuple[Hook, ...]
    providers: Mapping[str, Provider]
    own_lazy: Mapping[str, LazyFixture]
    own_cells: tuple[Cell, ...]
    contested: tuple[str, ...]
    lazy: Mapping[str, Provider]
    sequences: tuple[HookSequence, HookSequence]
    run_pre: Run | None
    run_post: Run | None


def compile_plan(
    stage: str,
    hooks: Iterable[Hook],
    providers: Mapping[str, Mapping[str, Provider]],
    cell_of: CellOf = Cell,
    alive_and_lazy: Iterable[str] = (),
    is_timed: bool = False,
    is_joined: bool = False,
    store: Store | None = None,
    own_names: frozenset[str] = frozenset(),
    late: frozenset[str] = frozenset(),
) -> Plan:
    """Sort out what belongs to this stage.

    Args:
        stage: the stage's name.
        hooks: all hooks, in the order of registration.
        providers: the provider of each fixture's name, by stage.
        cell_of: finds the cells of fixtures.
        alive_and_lazy: lazy fixtures of open stages, whose providers may have been removed since.
        is_timed: the time of the hooks is added up.
        is_joined: extensions that come late join this stage.
        store: computes the lazy fixtures; None for a plan that no stage runs.
        own_names: those of the Extensible.
        late: names of fixtures whose cells are written when something asks for them.
    """
    lazy = _of_all_stages(providers)
    hooks = tuple(hooks)
    pre, post, around = in_their_order(stage, hooks, lazy)
    own, computed = providers.get(stage, {}), frozenset({*lazy, *alive_and_lazy})
    schedules = tuple(schedule for hook in around + pre + post for schedule, _ in hook.schedules)
    counting = tuple(schedule for hook in hooks for schedule, _ in hook.schedules if schedule.of == stage)
    sequences = (
        HookSequence(
            f"pre_{stage}",
            around + pre,
            computed,
            own_names,
            late,
            schedules,
            is_timed=is_timed,
            ends="stage._opened()" if is_joined else "",
        ),
        HookSequence(
            f"post_{stage}",
            post,
            computed,
            own_names,
            late,
            counting=counting,
            is_timed=is_timed,
            begins="stage._ends()" if is_joined and post else "",
        ),
    )
    run_pre, run_post = (sequence.function(cell_of) if sequence else None for sequence in sequences)
    own_lazy = {name: LazyFixture(provider, store) for name, provider in own.items()} if store else {}
    elsewhere = {name for other, of_stage in providers.items() if other != stage for name in of_stage}
    contested = tuple(elsewhere.intersection(own_lazy))
    own_cells = tuple(map(cell_of, own_lazy))
    return Plan(around, pre, post, own, own_lazy, own_cells, contested, lazy, sequences, run_pre, run_post)


def in_their_order(stage: str, hooks: Iterable[Hook], lazy: Mapping[str, Provider]) -> list[tuple[Hook, ...]]:
    """Return the pre, post and around-hooks of a stage, in the order they run."""
    here = [hook for hook in hooks if hook.stage in (stage, EVERY_STAGE)]
    return [in_order([hook for hook in here if hook.kind == kind], lazy) for kind in KINDS]


def _of_all_stages(providers: Mapping[str, Mapping[str, Provider]]) -> dict[str, Provider]:
    return {name: provider for in_stage in providers.values() for name, provider in in_stage.items()}


@final
class Plans:
    """The plan of every stage, by its name; made at the first lookup, and kept in the state."""

    def __init__(self, state: Store) -> None:
        self._kept_in = ref(state)  # weakly, for the state has the plans: what is gone would wait for a collection
        self._hooks: tuple[Hook, ...] = ()
        self._providers: Mapping[str, Mapping[str, Provider]] = {}

    @property
    def _state(self) -> Store:
        return cast(Store, self._kept_in())

    def use(self, hooks: Iterable[Hook], providers: Iterable[Provider]) -> None:
        """Use these hooks from the next stage on; an open stage keeps its plan. On an error, nothing is changed."""
        hooks = tuple(hooks)
        by_stage = chosen(list(providers))
        refuse_two_providers(hooks, by_stage)
        for stage in {hook.stage for hook in hooks}:  # hooks of every stage meet each other too
            in_their_order(stage, hooks, _of_all_stages(by_stage))
        self._hooks, self._providers = hooks, by_stage
        self._state.forget_definers()  # removed hooks may be among them
        self._state.late.update((name, self._state.cell(name)) for name in _of_all_stages(by_stage))
        self.make_anew()

    def make_anew(self) -> None:
        """Make each plan again at the next opening of its stage."""
        self._state.forget_plans()

    def __getitem__(self, stage: str) -> Plan:
        _require_name(stage)
        state = self._state
        plan: Plan | None = state.plans.get(stage)
        if plan is None:
            is_timed, is_joined = state.options.times_hooks, stage == state.options.joined
            plan = compile_plan(
                stage,
                self._hooks,
                self._providers,
                state.cell,
                state.lazy,
                is_timed=is_timed,
                is_joined=is_joined,
                store=state,
                own_names=state.own_names,
                late=frozenset(state.late),
            )
            state.plans[stage] = plan
        return plan


def _require_name(stage: str) -> None:
    if stage == EVERY_STAGE:
        what = "a stage cannot be called 'stage', the name of the hooks of every stage"
    elif not (isinstance(stage, str) and stage.isidentifier()):
        what = f"a stage cannot be called {stage!r}: hooks are named after it, so it must be an identifier"
    elif normalize("NFKC", stage) != stage:
        what = f"a stage cannot be called {stage!r}: Python writes that name {normalize('NFKC', stage)!r} in a `def`"
    else:
        return
    raise StageError(what, name=str(stage), cure="take another name, like 'train_step_batch'")
