"""The mistakes in hooks and providers that a comparison with the stage tree shows, each as an error of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from train_manager.checker.advice import NOT_DEFINED, Advice
from train_manager.checker.hook_writes import find_definitions, find_modifications
from train_manager.checker.left_out import LeftOut
from train_manager.checker.method_source import ANYTHING
from train_manager.checker.methods import Methods
from train_manager.checker.too_late import TooLate
from train_manager.checker.tree import StageNode, StageTree
from train_manager.core import messages
from train_manager.core.hooks import Hook, Provider
from train_manager.core.messages import Asked
from train_manager.telling.errors import (
    FixtureNotFound,
    HookError,
    StageError,
    TrainManagerError,
    did_you_mean,
    near,
)
from train_manager.telling.source_locations import line_of_function
from train_manager.telling.words import Words, suggestion

Found = Iterator[TrainManagerError]


@final
@dataclass(frozen=True)
class HookMistakes:
    """Finds the mistakes in hooks and providers."""

    loop: Methods  # of the class whose stages the hooks run at
    whole: StageTree  # of all methods; the stage of each hook must be in it
    entered: StageTree  # of this run; the fixtures that a hook names must be alive somewhere in it
    providers: Sequence[Provider]  # in use; a provider that another one overrides is left out
    known: frozenset[str]  # names of the fixtures that need no stage
    words: Words  # the names that fixtures and stages have in other tools
    too_late: Sequence[TooLate]  # points at which hooks may not modify a fixture
    left_out: Callable[[str], LeftOut | None]  # finds the call without which a stage of a base class never opens

    def of(self, hooks: Iterable[Hook], *, strict: bool, outside: bool) -> Found:
        """Yield all mistakes.

        Args:
            hooks: all hooks.
            strict: hooks may write only what they declare.
            outside: code outside of the class opens stages too; then an unknown stage is a mistake only if its name
                is nearly that of a known one.
        """
        for hook in hooks:
            # Other code may open a stage of any name, unless the name is nearly that of a stage of this class.
            if not outside or hook.everywhere or hook.stage in self.whole.stages or near(hook.stage, self.whole.stages):
                yield from self.of_hook(hook)
            yield from self.find_never_counted(hook, outside)
            yield from self.find_early_requests(hook)
            yield from self.find_late_modifications(hook)
            if strict:
                yield from self.find_undeclared_writes(hook)
        for provider in self.providers:
            yield from self.of_provider(provider)
        yield from self.cycles()
        yield from self.of_calls_by_name()

    def is_of_a_known_name(self, mistake: TrainManagerError) -> bool:
        """Return whether the name in a mistake is, or is like, a name of the class: other code cannot excuse it."""
        fixtures = (name for node in self.whole.nodes.values() for name in node.definers)
        names, name = {*self.known, *self.whole.stages, *fixtures}, mistake.name
        return name in names or bool(near(name, names)) or self.left_out(name) is not None

    def of_hook(self, hook: Hook) -> Found:
        if hook.everywhere:
            yield from self.of_every_stage_hook(hook)
        elif hook.stage in self.whole.stages:
            yield from self.find_never_around(hook)
            yield from self.find_never_alive(hook)
        elif not self.whole.any_stage:
            yield self.no_such_stage(hook, f"{hook.kind}_{hook.stage}", hook.stage, f"{hook.kind}_")
            # If the name is misspelt, the fixtures of the hook are compared with the stage that is meant, so that one
            # check reports all mistakes of the hook.
            if self.left_out(hook.stage) is None:
                for stage in self.words.stages_meant(hook.stage, self.whole.stages)[:1]:
                    yield from self.of_hook(replace(hook, stage=stage))

    def find_never_counted(self, hook: Hook, outside: bool) -> Found:
        """Find schedules that count the ends of a stage that does not exist."""
        for schedule, _ in hook.schedules:
            if schedule.of is None or schedule.of in self.whole.stages or self.whole.any_stage:
                continue
            if not outside or near(schedule.of, self.whole.stages):
                yield self.no_such_stage(hook, f"@{schedule}", schedule.of)

    def find_never_around(self, hook: Hook) -> Found:
        """Find ``@provides(..., stage="...")`` of a stage that is never open around the hook."""
        for write in hook.writes:
            is_around = any(write.stage in node.path for node in self.whole.stages[hook.stage])
            if write.stage is not None and not is_around and not self.whole.any_stage:
                what = f"provides a fixture of stage {write.stage!r}, which is never open around {hook.stage!r}"
                around = {stage for node in self.whole.stages[hook.stage] for stage in node.path}
                meant = did_you_mean(self.words.stages_meant(write.stage, around))
                cure = meant or "name an enclosing stage, or leave `stage` out"
                yield _error(StageError, hook, f"{hook.label} {what}", write.stage, cure)

    def find_never_alive(self, hook: Hook) -> Found:
        """Find fixtures that the hook or its schedules name, or that the hook modifies, which are never alive there."""
        nodes = self.entered.stages.get(hook.stage, [])  # empty if this run never opens the stage: then all is well
        wanted = hook.call.expected
        modified = [write.name for write in hook.writes if not write.defines and write.name not in wanted]
        scheduled = [name for _, should_run in hook.schedules for name in should_run.required]
        yield from self.missing(hook, f"{hook.label} wants", wanted, nodes, hook.kind)
        yield from self.missing(hook, f"{hook.label} modifies", modified, nodes, hook.kind)
        yield from self.missing(hook, f"the schedule of {hook.label} wants", scheduled, nodes, hook.kind)

    def of_every_stage_hook(self, hook: Hook) -> Found:
        """Find a hook of every stage whose fixtures are alive in none: it would never run."""
        nodes = list(self.entered.nodes.values())
        wanted = [name for name in hook.call.required if name not in self.known]
        runs = any(all(node.may_have(hook.kind, name) for name in wanted) for node in nodes)
        if runs or not nodes or self.entered.any_stage:
            return
        # Either one fixture is alive nowhere; or each is alive somewhere, but never all of them together.
        missing = next(self.missing(hook, f"{hook.label} wants", wanted, nodes, hook.kind), None)
        what = f"{hook.label} wants {' and '.join(map(repr, wanted))}, which are never alive in the same stage"
        cure = "split it into hooks of the stages in which they are alive"
        yield missing or _error(FixtureNotFound, hook, what, wanted[0], cure)

    def find_early_requests(self, hook: Hook) -> Found:
        """Find lazy fixtures that a hook names too early: their own parameters come alive later in that stage."""
        for provider in (provider for provider in self.providers if provider.name in hook.call.required):
            nodes = [node for node in self.entered.stages.get(hook.stage, []) if provider.stage in node.path]
            own = self.entered.stages.get(provider.stage, [])
            later = [name for name in provider.call.required if any(node.may_have("post", name) for node in own)]
            asks = f"{hook.label} asks for {provider.name!r}, for which {provider.label} wants"
            yield from self.missing(hook, asks, later, nodes, hook.kind)

    def find_late_modifications(self, hook: Hook) -> Found:
        """Find ``@modifies`` of a fixture that the loop does not read any more, or never reads."""
        point = f"{hook.kind}_{hook.stage}"
        for late in self.too_late:
            for name in (write.name for write in hook.writes if not write.defines and write.name in late.names):
                if not late.points or point in late.points:
                    how = " too late" if late.points else ", which is read-only"
                    what = f"{hook.label} modifies {name!r}{how}: {late.because}"
                    yield _error(HookError, hook, what, name, late.cure)

    def find_undeclared_writes(self, hook: Hook) -> Found:
        """Find writes through `fixtures` with a name that no decorator of the hook declares."""
        defined = {(name, stage) for names, stage in find_definitions(hook, self.loop) for name in names}
        modified = {(name, None) for name in find_modifications(hook, self.loop)}
        for name, stage in sorted(defined | modified, key=str):
            if name in (ANYTHING, *hook.written):
                continue
            # A fixture with another definer is there already: then the hook modifies it.
            definers = {node.definers[name] for node in self.whole.nodes.values() if name in node.definers}
            of_stage = f', stage="{stage}"' if stage else ""
            decorator = f'@modifies("{name}")' if definers - {hook.label} else f'@provides("{name}"{of_stage})'
            yield messages.undeclared_error(_asked(hook, name), decorator)

    def of_provider(self, provider: Provider) -> Found:
        if provider.stage in self.whole.stages:
            nodes = self.entered.stages.get(provider.stage, [])
            yield from self.missing(provider, f"{provider.label} wants", provider.call.required, nodes, "post")
        elif not self.whole.any_stage:
            yield self.no_such_stage(provider, f'@fixture("{provider.stage}")', provider.stage)

    def cycles(self) -> Found:
        """Find lazy fixtures that name each other in a circle."""
        reported: list[Provider] = []
        for start in self.providers:
            cycle = [] if start in reported else self.cycle_from(start)  # each cycle once, not once for each provider
            if cycle:
                reported += cycle
                requests = [provider.request for provider in (*cycle, start)]
                yield messages.cycle_error(_asked(start, start.name), requests)

    def cycle_from(self, start: Provider) -> list[Provider]:
        """Return a path from a provider back to itself through stages that are open together; empty if none exists."""
        return next(([start, *way[:-1]] for way in self.ways_from(start) if way[-1] is start), [])

    def ways_from(self, asker: Hook | Provider) -> Iterator[list[Provider]]:
        """Yield a way to each lazy fixture that is asked for, also by others, through stages that are open together."""
        first = () if isinstance(asker, Hook) and asker.everywhere else (asker.stage,)
        names: Sequence[str] = asker.parameters if isinstance(asker, Hook) else asker.call.parameters
        ways: list[tuple[list[Provider], Sequence[str]]] = [([], names)]
        seen: list[Provider] = []
        while ways:
            way, names = ways.pop()
            for asked in (provider for provider in self.providers if provider.name in names):
                # Providers of stages that are never open at the same time cannot ask for each other.
                stages = {*first, *(provider.stage for provider in (*way, asked))}
                is_reached = any(stages.issubset(node.path) for node in self.whole.nodes.values())
                if is_reached and asked not in seen:
                    seen.append(asked)
                    ways.append(([*way, asked], asked.call.parameters))
                    yield [*way, asked]

    def of_calls_by_name(self) -> Found:
        """Find methods, called by fixture names, that require a name which is alive at none of the calls."""
        for (function, name), alive in self.entered.called_by_name.items():
            if name not in self.known and name not in alive and ANYTHING not in alive:
                nearest = self.words.fixtures_meant(name, alive | self.known)
                yield FixtureNotFound(
                    f"{function.__qualname__} wants {name!r}, which is never alive where it is called",
                    name=name,
                    asked_by=function.__qualname__,
                    asked_at=line_of_function(function),
                    alive=alive - self.known,
                    nearest=nearest,
                    cure=suggestion(nearest[0]) if nearest else NOT_DEFINED,
                )

    def no_such_stage(self, asker: Hook | Provider, what: str, stage: str, kind: str = "") -> TrainManagerError:
        """Make the error for a stage that no method opens: an override leaves a call out, or the name is wrong."""
        never = f"{asker.label} ({asker.whose}) would never run"
        left_out = self.left_out(stage)
        if left_out is not None:
            return _error(HookError, asker, f"{never}: {left_out}", stage, self.cure_of(asker, left_out))
        nearest = self.words.stages_meant(stage, self.whole.stages)
        cure = (
            did_you_mean([f"{kind}{meant}" for meant in nearest])
            or f"the stages are {', '.join(self.whole.stages) or 'none'}"
        )
        return _error(HookError, asker, f"{never}: {what} names no stage", stage, cure, nearest=nearest)

    def cure_of(self, asker: Hook | Provider, left_out: LeftOut) -> str:
        """Return the cure for a stage that never opens: the missing call, or hooks of stages near it."""
        around = left_out.around
        if around is None or around not in self.whole.stages:
            return "call it there"
        instead = f"{asker.kind}_{around}" if isinstance(asker, Hook) else f'@fixture("{around}")'
        inside = [node.stage for node in self.whole.nodes.values() if node.path[-2:-1] == (around,)]
        more = f", or a hook of {' or '.join(dict.fromkeys(inside))}" if inside else ""
        return f"call it there, or use {instead}{more}"

    def missing(
        self, asker: Hook | Provider, asks: str, names: Iterable[str], nodes: Sequence[StageNode], kind: str
    ) -> Found:
        """Yield an error for each name that is alive at none of these nodes; none if there are no nodes."""
        for name in dict.fromkeys(names):
            if nodes and name not in self.known and not any(node.may_have(kind, name) for node in nodes):
                yield self.not_alive(asker, asks, name, nodes, kind)

    def not_alive(
        self, asker: Hook | Provider, asks: str, name: str, nodes: Sequence[StageNode], kind: str
    ) -> TrainManagerError:
        """Make the error for a name that is alive at none of the nodes."""
        point = f"{kind}_{asker.stage}" if isinstance(asker, Hook) else f"stage {asker.stage!r}"
        advice = Advice(asker, nodes, kind, self.entered, self.known, self.words)
        cure, nearest = advice.of(name)
        lives = name in advice.defined
        what = (
            f"which is not alive at {point}: {advice.describe_owner(name)}"
            if lives
            else f"which is never alive at {point}"
        )
        if cure == NOT_DEFINED and asks.endswith("modifies"):
            cure = f'nothing defines it; to define it: @provides("{name}")'
        alive = advice.here - self.known
        return _error(FixtureNotFound, asker, f"{asks} {name!r}, {what}", name, cure, alive=alive, nearest=nearest)


def find_unopened(hooks: Iterable[Hook], whole: StageTree) -> list[Hook]:
    """Return the hooks whose stage is not in the tree: by mistake, or because its name is made at run time."""
    return [hook for hook in hooks if not hook.everywhere and hook.stage not in whole.stages]


def _asked(asker: Hook | Provider, name: str) -> Asked:
    return {"name": name, "asked_by": asker.label, "asked_at": asker.defined_at}


def _error(
    kind: type[TrainManagerError], asker: Hook | Provider, what: str, name: str, cure: str, **data: Any
) -> TrainManagerError:
    return kind(what, cure=cure, **_asked(asker, name), **data)
