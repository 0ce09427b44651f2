"""The plan of a stage: the hooks of all extensions that run there, sorted once, and its lazy fixtures.

A plan is made when a stage first opens, and kept until an extension comes or goes. So work that is done here is not
done in a training step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast, final
from weakref import ref

from train_manager.core import messages
from train_manager.core.dispatch import CellOf, HookSequence, StageFunction
from train_manager.core.hooks import EVERY_STAGE, KINDS, Hook, Provider
from train_manager.core.order import choose_providers, in_order, refuse_two_providers
from train_manager.core.scope import Cell, Scope
from train_manager.core.store import Store, unwatched
from train_manager.core.watcher import ASKS, BEGINS, ENDS
from train_manager.telling.errors import HookError, OrderError, StageError


@final
class LazyFixture:
    """The lazy fixture of a provider, in any open stage that owns it: computed when it is first asked for.

    One object serves all openings of its stage: the cell of the fixture knows the open stage that owns it.
    """

    __slots__ = ("_store", "provider")

    def __init__(self, provider: Provider, store: Store) -> None:
        self.provider = provider
        self._store = store

    def __call__(self) -> Any:
        """Compute the value from the live fixtures, and make it a fixture of the stage."""
        provider, store = self.provider, self._store
        request = provider.request
        if request in store.requests:
            raise self._cycle(request)
        scope: Scope = store.cells[provider.name].owner
        # While the provider runs, errors about fixtures and stages name it, and not the hook that asks.
        before, depth = store.running, len(store.requests)
        store.watch(store.innermost or scope, before or ASKS)  # what was done so far is not the work of the provider
        try:  # not a context manager: Ctrl-C could come between its entry and the block, or on the way out
            # The chain in an error begins with the hook that has asked for the first of the lazy fixtures.
            store.requests += [before.request] if before is not None and not depth else []
            store.requests.append(request)
            store.running = provider
            value = self._compute_value(scope)
        except BaseException as error:
            store.running = before  # first, since Ctrl-C may come at the call in the next line
            error.add_note(f"in fixture {request}")
            raise
        finally:
            store.running = before  # first, since Ctrl-C may come again, and `requests` matters for messages only
            del store.requests[depth:]
        store.set_computed(provider.name, value, scope, provider)
        store.watch(store.innermost or scope, provider)
        return value

    def _compute_value(self, scope: Scope) -> Any:
        provider, store = self.provider, self._store
        # Before the call, which would first compute other lazy fixtures, and then fail.
        for name in provider.call.parameters:
            store.require_life(name, scope, provider)
        value = provider.call(store)
        return self._first(value, scope) if provider.cleans_up else value

    def _first(self, generator: Generator[Any, None, None], scope: Scope) -> Any:
        """Return the value that the provider yields; the rest of it runs when the stage ends."""
        for value in generator:  # the first round only; a loop, since `next` raises at a generator without a `yield`
            scope.add_extras().suspended.append((self.provider, generator))
            return value
        raise _misuse_error(self.provider, "did not yield a value")

    def _cycle(self, request: str) -> OrderError:
        requests = self._store.requests
        asked = self._store.asked(self.provider.name, self.provider)
        return messages.cycle_error(asked, (*requests[requests.index(request) :], request))


def clean_up(provider: Provider, generator: Generator[Any, None, None]) -> None:
    """Run the rest of a provider after its ``yield``."""
    for _ in generator:  # a second `yield`
        generator.close()
        raise _misuse_error(provider, "yields more than once")


def _misuse_error(provider: Provider, wrong: str) -> HookError:
    cure = "a fixture with clean-up must have one `yield value`; the rest runs when the stage ends"
    return provider.call.error(wrong, provider.name, cure)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The hooks and the lazy fixtures of one stage, ready to be used at each opening."""

    around: tuple[Hook, ...]  # in the order in which they enter
    pre: tuple[Hook, ...]  # in the order in which they run
    post: tuple[Hook, ...]
    providers: Mapping[str, Provider]  # of the stage's own lazy fixtures, by name
    own_lazy: tuple[tuple[Cell, LazyFixture], ...]  # the stage's own lazy fixtures: a stage that opens writes the cells
    lazy: Mapping[str, Provider]  # providers of the lazy fixtures of all stages
    sequences: tuple[HookSequence, HookSequence]  # the hooks before the body, and the hooks after it
    run_pre: StageFunction | None  # calls the first sequence; None if it is empty
    run_post: StageFunction | None  # calls the second sequence; None if it is empty

    @property
    def is_empty(self) -> bool:
        """Whether nothing looks into the stage: no hook, provider or watcher, no schedule of another stage's hook."""
        return not self.providers and self.run_pre is None and self.run_post is None

    @property
    def lookers(self) -> tuple[str, ...]:
        """The classes that look into the stage, each once; empty if it is empty."""
        here: tuple[Hook | Provider, ...] = (*self.around, *self.pre, *self.post, *self.providers.values())
        found = [looker.label.partition(".")[0] for looker in here]  # a label is "Class.method"
        found += ["a watcher"] if self.sequences[0].tells else []
        if not found and not self.is_empty:
            return ("a schedule",)  # of a hook of another stage, which counts the openings or the ends of this one
        return tuple(dict.fromkeys(found))


def compile_plan(
    stage: str,
    hooks: Iterable[Hook],
    providers: Mapping[str, Mapping[str, Provider]],
    cell_of: CellOf = Cell,
    alive_and_lazy: Iterable[str] = (),
    is_timed: bool = False,
    store: Store | None = None,
    own_names: frozenset[str] = frozenset(),
) -> Plan:
    """Make the plan of a stage.

    Args:
        stage: the stage's name.
        hooks: all hooks, in the order of registration.
        providers: the provider of each fixture's name, by stage.
        cell_of: finds the cells of fixtures.
        alive_and_lazy: lazy fixtures of open stages, whose providers may have been removed since.
        is_timed: the time of the hooks is added to ``store.hook_seconds``.
        store: computes the lazy fixtures; None for a plan that no stage runs.
        own_names: fixture names of the Extensible.
    """
    lazy = _of_all_stages(providers)
    hooks = tuple(hooks)  # iterated over twice
    pre, post, around = in_their_order(stage, hooks, lazy)
    own, computed = providers.get(stage, {}), frozenset({*lazy, *alive_and_lazy})
    schedules = tuple(schedule for hook in around + pre + post for schedule, _ in hook.schedules)
    # Hooks of any stage may count the ends of this one: `@every(100, of="train_optimizer_step")`.
    counting = tuple(schedule for hook in hooks for schedule, _ in hook.schedules if schedule.of == stage)
    is_watched = store is not None and store.watch is not unwatched
    sequences = (
        HookSequence(
            f"pre_{stage}",
            around + pre,
            computed,
            own_names,
            schedules,
            is_timed=is_timed,
            tells=BEGINS if is_watched else "",
        ),
        HookSequence(
            f"post_{stage}",
            post,
            computed,
            own_names,
            counting=counting,
            is_timed=is_timed,
            tells=ENDS if is_watched else "",
        ),
    )
    run_pre, run_post = (sequence.function(cell_of) if sequence else None for sequence in sequences)
    own_lazy = tuple((cell_of(name), LazyFixture(provider, store)) for name, provider in own.items()) if store else ()
    return Plan(around, pre, post, own, own_lazy, lazy, sequences, run_pre, run_post)


def in_their_order(stage: str, hooks: Iterable[Hook], lazy: Mapping[str, Provider]) -> list[tuple[Hook, ...]]:
    """Return the pre, post and around-hooks of a stage, each in the order in which they run."""
    here = [hook for hook in hooks if hook.stage in (stage, EVERY_STAGE)]
    return [in_order([hook for hook in here if hook.kind == kind], lazy) for kind in KINDS]


def _of_all_stages(providers: Mapping[str, Mapping[str, Provider]]) -> dict[str, Provider]:
    """Return one provider for each name, whatever its stage."""
    return {name: provider for in_stage in providers.values() for name, provider in in_stage.items()}


@final
class Plans:
    """The plan of every stage, by its name; made at the first lookup, and kept in the state."""

    def __init__(self, state: Store) -> None:
        # Weakly: the state refers to this object, and a cycle would keep both alive until a garbage collection.
        self._kept_in = ref(state)
        self._hooks: tuple[Hook, ...] = ()
        self._providers: Mapping[str, Mapping[str, Provider]] = {}

    @property
    def _state(self) -> Store:
        return cast(Store, self._kept_in())

    def use(self, hooks: Iterable[Hook], providers: Iterable[Provider]) -> None:
        """Use these hooks from the next stage on; an open stage keeps its plan. On an error, nothing is changed."""
        # All that may be refused comes first: two definers of a fixture, hooks that nothing orders, cycles.
        hooks = tuple(hooks)
        by_stage = choose_providers(providers)
        refuse_two_providers(hooks, by_stage)
        # Among them EVERY_STAGE, whose hooks meet each other too. In the order of the hooks, so that each process
        # refuses the same one of several mistakes.
        for stage in dict.fromkeys(hook.stage for hook in hooks):
            in_their_order(stage, hooks, _of_all_stages(by_stage))
        self._hooks, self._providers = hooks, by_stage
        self._state.forget_definers()  # removed hooks, and with them their extension, may be among them
        self._state.forget_plans()

    def __getitem__(self, stage: str) -> Plan:
        _require_name(stage)
        state = self._state
        plan: Plan | None = state.plans.get(stage)
        if plan is None:  # never made, or forgotten since the extensions have changed
            plan = compile_plan(
                stage,
                () if state.without_hooks else self._hooks,
                self._providers,
                state.cell,
                state.lazy,
                is_timed=state.options.times_hooks,
                store=state,
                own_names=state.own_names,
            )
            state.plans[stage] = plan
            if plan.is_empty and stage in state.options.closing and not state.without_hooks:
                state.closed.add(stage)
        return plan


@contextmanager
def without_hooks(store: Store) -> Iterator[None]:
    """Let stages open without hooks for a ``with`` block, which may be a part of a hook."""
    before = store.plans, store.running, store.without_hooks, store.watch
    # Plans with hooks are put aside, so that the block makes its own. While a hook runs, no stage may open.
    # The watchers are put aside too: all that the block does is the work of that hook.
    store.plans, store.running, store.without_hooks, store.watch = {}, None, True, unwatched
    try:
        yield
    finally:
        store.plans, store.running, store.without_hooks, store.watch = before


def _require_name(stage: str) -> None:
    """Refuse a name that no hook could be named after."""
    if stage == EVERY_STAGE:
        what = "a stage cannot be called 'stage', the name of the hooks of every stage"
    elif not (isinstance(stage, str) and stage.isidentifier()):
        what = f"a stage cannot be called {stage!r}: hooks are named after it, so it must be an identifier"
    else:
        return
    raise StageError(what, name=str(stage), cure="take another name, like 'train_step_batch'")
