"""Mistakes that can be seen before the first stage opens: hooks and providers held against the stage tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from train_manager.checker.method_source import ANYTHING
from train_manager.checker.tree import Place, Tree, modified_inside, writes_inside
from train_manager.core.errors import (
    FixtureNotFound,
    HookError,
    OrderError,
    StageError,
    TrainManagerError,
    did_you_mean,
    near,
)
from train_manager.core.hooks import Hook
from train_manager.core.locations import line_of_function
from train_manager.core.providers import Provider, chosen


def mistakes(
    whole: Tree,
    entered: Tree,
    hooks: Sequence[Hook],
    providers: Sequence[Provider],
    always_there: Iterable[str],
    *,
    strict: bool = False,
    outside: bool = False,
) -> list[TrainManagerError]:
    """All that is wrong, as errors of their own.

    Args:
        whole: the tree of all methods; a hook's stage must be in it.
        entered: the tree of this run; what a hook asks for must be alive somewhere in it.
        hooks: all of them.
        providers: all of them.
        always_there: names that need no stage.
        strict: hooks may write only what they declare.
        outside: code outside of the class opens stages too; then only what is nearly a stage's name is a mistake.
    """
    known = frozenset(always_there)
    providers = [provider for in_stage in chosen(list(providers)).values() for provider in in_stage.values()]
    found: list[TrainManagerError] = []
    for hook in hooks:
        if not outside or near(hook.stage, whole.stages()) or hook.everywhere or hook.stage in whole.stages():
            found += _of_hook(hook, whole, entered, known)
        found += _asked_too_early(hook, entered, providers, known)
        found += _undeclared(hook, whole) if strict else ()
    for provider in providers:
        found += _of_provider(provider, whole, entered, known)
    found += _cycles(providers, whole)
    found += _of_calls_by_name(entered, known)
    return found


def unopened(hooks: Iterable[Hook], whole: Tree) -> list[Hook]:
    """Hooks whose stage is not in the tree: mistaken, or for a stage whose name is made at run time."""
    stages = whole.stages()
    return [hook for hook in hooks if not hook.everywhere and hook.stage not in stages]


def _of_hook(hook: Hook, whole: Tree, entered: Tree, known: frozenset[str]) -> Iterator[TrainManagerError]:
    if hook.everywhere:
        yield from _of_every_stage_hook(hook, entered, known)
        return
    stages = whole.stages()
    if hook.stage not in stages:
        if not whole.any_stage:
            yield _no_such_stage(hook, f"{hook.kind}_{hook.stage}", hook.stage, stages)
        return
    for write in hook.writes:
        around = (write.stage in place.path for place in stages[hook.stage])
        if write.stage is not None and not whole.any_stage and not any(around):
            yield _not_around(hook, write.stage)
    places = entered.stages().get(hook.stage, [])
    modified = (write.name for write in hook.writes if not write.defines)
    for name in dict.fromkeys((*hook.call.required, *modified)):
        if places and name not in known and not any(place.knows(hook.kind, name) for place in places):
            verb = "wants" if name in hook.call.required else "modifies"
            yield _never_alive(hook, f"{hook.label} {verb}", name, places, entered, known, hook.kind)
    for name in dict.fromkeys(name for _, should_run in hook.schedules for name in should_run.required):
        if places and name not in known and not any(place.knows(hook.kind, name) for place in places):
            asks = f"the schedule of {hook.label} wants"
            yield _never_alive(hook, asks, name, places, entered, known, hook.kind)


def _asked_too_early(
    hook: Hook, entered: Tree, providers: Sequence[Provider], known: frozenset[str]
) -> Iterator[TrainManagerError]:
    """A fixture on demand that a hook asks for before what it is made of is alive."""
    stages = entered.stages()
    for provider in (provider for provider in providers if provider.name in hook.call.required):
        places = [place for place in stages.get(hook.stage, []) if provider.stage in place.path]
        for name in provider.call.required:
            ever = any(place.knows("post", name) for place in stages.get(provider.stage, []))
            here = name in known or any(place.knows(hook.kind, name) for place in places)
            if places and ever and not here:
                asks = f"{hook.label} asks for {provider.name!r}, for which {provider.label} wants"
                yield _never_alive(hook, asks, name, places, entered, known, hook.kind)


def _of_every_stage_hook(hook: Hook, entered: Tree, known: frozenset[str]) -> Iterator[TrainManagerError]:
    """It runs where all that it asks for is alive; somewhere that must be."""
    places = list(entered.places.values())
    wanted = [name for name in hook.call.required if name not in known]
    if entered.any_stage or not places or any(all(p.knows(hook.kind, name) for name in wanted) for p in places):
        return
    for name in wanted:
        if not any(place.knows(hook.kind, name) for place in places):
            yield _never_alive(hook, f"{hook.label} wants", name, places, entered, known, hook.kind)
            return
    yield FixtureNotFound(
        f"{hook.label} wants {' and '.join(map(repr, wanted))}, which are alive together in no stage",
        name=wanted[0],
        asked_by=hook.label,
        asked_at=hook.call.defined_at,
        cure="split it into hooks of the stages where each is alive",
    )


def _undeclared(hook: Hook, whole: Tree) -> Iterator[TrainManagerError]:
    """Writes through `fixtures` that stand in its source with their names, and in no decorator."""
    defined = {(name, stage) for names, stage in writes_inside(hook) for name in names}
    written = defined | {(name, None) for name in modified_inside(hook)}
    for name, stage in sorted(written, key=str):
        if name in (ANYTHING, *hook.written):
            continue
        definers = {place.born[name] for place in whole.places.values() if name in place.born}
        of_stage = f', stage="{stage}"' if stage else ""
        mark = f'@modifies("{name}")' if definers - {hook.label} else f'@provides("{name}"{of_stage})'
        yield HookError(
            f"{hook.label} writes {name!r} without declaring it, which `strict` refuses",
            name=name,
            asked_by=hook.label,
            asked_at=hook.call.defined_at,
            cure=f"declare it and return the value: {mark}",
        )


def _of_provider(provider: Provider, whole: Tree, entered: Tree, known: frozenset[str]) -> Iterator[TrainManagerError]:
    stages = whole.stages()
    if provider.stage not in stages:
        if not whole.any_stage:
            yield _no_such_stage(provider, f'@fixture("{provider.stage}")', provider.stage, stages)
        return
    places = entered.stages().get(provider.stage, [])
    for name in provider.call.required:
        if places and name not in known and not any(place.knows("post", name) for place in places):
            yield _never_alive(provider, f"{provider.label} wants", name, places, entered, known, "post")


def _of_calls_by_name(entered: Tree, known: frozenset[str]) -> Iterator[TrainManagerError]:
    """Methods that the loop calls by fixture names, with a name that is alive at none of the calls."""
    for (function, name), alive in entered.called_by_name.items():
        if name not in known and name not in alive and ANYTHING not in alive:
            nearest = near(name, alive)
            yield FixtureNotFound(
                f"{function.__qualname__} wants {name!r}, which is never alive where it is called",
                name=name,
                asked_by=function.__qualname__,
                asked_at=line_of_function(function),
                alive=alive - known,
                nearest=nearest,
                cure=did_you_mean(nearest) or "nobody defines it; give the parameter a default if it may be absent",
            )


def _cycles(providers: Sequence[Provider], whole: Tree) -> Iterator[TrainManagerError]:
    told: list[Provider] = []
    for start in providers:
        cycle = [] if start in told else _cycle_from(start, providers, whole)
        if cycle:
            told += cycle
            yield OrderError(
                f"{cycle[0].label} asks for itself in a cycle",
                name=cycle[0].name,
                asked_by=cycle[0].label,
                asked_at=cycle[0].call.defined_at,
                requests=[f"{provider.label} ({provider.call.defined_at})" for provider in (*cycle, cycle[0])],
                cure="let one of them be computed without the others",
            )


def _cycle_from(start: Provider, providers: Sequence[Provider], whole: Tree) -> list[Provider]:
    """A way from a provider back to itself, through stages that are open together; empty where there is none."""
    ways = [[start]]
    seen: list[Provider] = []
    while ways:
        way = ways.pop()
        stages = {provider.stage for provider in way}
        for asked in (provider for provider in providers if provider.name in way[-1].call.parameters):
            together = any(stages.union({asked.stage}).issubset(place.path) for place in whole.places.values())
            if asked is start and together:
                return way
            if asked not in seen and together:
                seen.append(asked)
                ways.append([*way, asked])
    return []


def _no_such_stage(asker: Hook | Provider, what: str, stage: str, stages: dict[str, list[Place]]) -> TrainManagerError:
    nearest = near(stage, stages)
    return HookError(
        f"{asker.label} ({asker.whose}) would never run: {what} names no stage",
        name=stage,
        asked_by=asker.label,
        asked_at=asker.call.defined_at,
        nearest=nearest,
        cure=did_you_mean(nearest) or f"the stages are {', '.join(stages) or 'none'}",
    )


def _not_around(hook: Hook, stage: str) -> TrainManagerError:
    return StageError(
        f"{hook.label} provides a fixture of stage {stage!r}, which is never open around {hook.stage!r}",
        name=stage,
        asked_by=hook.label,
        asked_at=hook.call.defined_at,
        cure="name an enclosing stage, or leave `stage` out",
    )


def _never_alive(
    asker: Hook | Provider,
    asks: str,
    name: str,
    places: Sequence[Place],
    tree: Tree,
    known: frozenset[str],
    kind: str,
) -> TrainManagerError:
    point = f"{kind}_{asker.stage}" if isinstance(asker, Hook) else f"stage {asker.stage!r}"
    alive = set().union(*(_alive(place, kind) for place in places)) - {ANYTHING} - known
    owners = [place for place in tree.places.values() if name in place.born]
    if owners:
        stages = dict.fromkeys(place.path[-1] for place in owners)
        what = f"which is not alive at {point}: it lives in stage {' and '.join(map(repr, stages))}"
        cure = _lifetime_cure(asker, name, places, owners)
        nearest: tuple[str, ...] = ()
    else:
        what = f"which is never alive at {point}"
        nearest = near(name, {*alive, *(born for place in tree.places.values() for born in place.born)})
        cure = did_you_mean(nearest) or "nobody defines it; give the parameter a default if it may be absent"
    return FixtureNotFound(
        f"{asks} {name!r}, {what}",
        name=name,
        asked_by=asker.label,
        asked_at=asker.call.defined_at,
        alive=alive,
        nearest=nearest,
        cure=cure,
    )


def _alive(place: Place, kind: str) -> set[str]:
    return {"around": place.entered, "pre": place.before, "post": place.after}[kind]


def _lifetime_cure(asker: Hook | Provider, name: str, places: Sequence[Place], owners: Sequence[Place]) -> str:
    """What to do about a fixture that lives, but not here: later in a stage around, in a stage inside, or elsewhere."""
    around = {owner.path[-1] for owner in owners for place in places if owner.path == place.path[: len(owner.path)]}
    inside = {owner.path[-1] for owner in owners for place in places if place.path == owner.path[: len(place.path)]}
    if isinstance(asker, Provider):
        return f'provide it there: @fixture("{owners[0].path[-1]}")'
    if around and asker.kind == "post":
        return "it is defined later: hook a stage that ends after that"
    if around:
        return f"it is defined later: use post_{asker.stage}, or a stage after that"
    if inside:
        stage = min(inside)
        return (
            f'use post_{stage}; to keep it, provide it under a name of its own: @provides(..., stage="{asker.stage}")'
        )
    return f"that is another branch: use post_{owners[0].path[-1]}, or define it in a stage around both"
