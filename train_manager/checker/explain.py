"""What runs where, in which order and why, and what lives how long: the stage tree as text, or as data for tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from train_manager.checker.tree import Place, Tree, stage_tree
from train_manager.core.extension import Extension
from train_manager.core.hooks import SIDES, Hook
from train_manager.core.order import reasons_for
from train_manager.core.plan import Plan
from train_manager.core.registry import Registry

Described = dict[str, Any]
PlanOf = Callable[[str], Plan]


def explain(owner: type, registry: Registry, about: str | Extension | None, format: str) -> str:
    """Return what runs where, as ``Extensible.explain`` gives it.

    Raises:
        ValueError: another format, or no stage given for its code.
    """
    if format == "code":
        if not isinstance(about, str):
            raise ValueError('format="code" takes the name of a stage: explain("train_step_batch", format="code")')
        return "\n".join(side.text() for side in registry.plans[about].sides if side)
    plan_of = registry.plans.__getitem__
    tree = stage_tree(owner, plan_of)
    if format == "json":
        return json.dumps(described(tree, plan_of), indent=2)
    if format != "text":
        raise ValueError(f"format is {format!r}; give 'text', 'json' or 'code'")
    if about is None:
        return tree_text(owner.__name__, tree, plan_of)
    extension = next((name for name, there in registry.extensions.items() if about in (name, there)), None)
    if extension is None:
        return fixture_text(str(about), tree, plan_of)
    return extension_text(extension, tree, plan_of)


def described(tree: Tree, plan_of: PlanOf) -> list[Described]:
    """The tree as plain lists, dicts and strings: one entry for each stage at each place."""
    return [_described_place(place, plan_of(place.path[-1])) for place in tree.places.values()]


def tree_text(title: str, tree: Tree, plan_of: PlanOf) -> str:
    """The tree with, at each point, who runs and why there; a stage that comes again is told once."""
    lines = [title, *(f"at every stage: {told}" for told in _everywhere(tree, plan_of))]
    told: set[str] = set()
    roots = [place for place in tree.places.values() if len(place.path) == 1]
    for place in roots:
        lines += _branch(place, tree, plan_of, told, "", "")
    return "\n".join([*lines, *(f"not known: {what}" for what in tree.unknown)])


def fixture_text(name: str, tree: Tree, plan_of: PlanOf) -> str:
    """The life of one fixture: where it is defined and by whom, who reads and changes it, and where it ends."""
    lives: dict[str, str] = {}
    for place in tree.places.values():
        if name in place.born:
            lives.setdefault(place.path[-1], place.born[name])
    lines = [f"{name!r}" if lives else f"{name!r} is defined by no stage, hook or provider that can be read"]
    for stage, definer in lives.items():
        lines.append(f"  lives in stage {stage!r}, defined by {definer or 'it'}; ends with it")
    for what, who in _touched(name, tree, plan_of):
        lines.append(f"  {what:11} {who}")
    return "\n".join(lines)


def extension_text(name: str, tree: Tree, plan_of: PlanOf) -> str:
    """The doings of one extension: its hooks where they run, and its fixtures."""
    lines = [f"extension {name!r}"]
    for place in _first_places(tree):
        plan = plan_of(place.path[-1])
        for side in SIDES:
            hooks = _at(plan, side)
            for number, hook in enumerate(hooks, start=1):
                if hook.owner == name:
                    point = f"{side}_{place.path[-1]}, {number} of {len(hooks)}"
                    lines.append(f"  at {point}: {_told(hook, hooks, plan)}")
        for provider in plan.providers.values():
            if provider.owner == name:
                lines.append(f"  in {place.path[-1]}: provides {provider.name}{_reads(provider.call.asks_for)}")
    return "\n".join(lines)


def _described_place(place: Place, plan: Plan) -> Described:
    return {
        "stage": place.path[-1],
        "path": list(place.path),
        "defines": dict(sorted(place.born.items())),
        "reads": sorted(place.reads),
        "modifies": sorted(place.modifies),
        "hooks": {side: [_described_hook(hook, _at(plan, side), plan) for hook in _at(plan, side)] for side in SIDES},
        "on_demand": {
            provider.name: {"by": provider.label, "reads": list(provider.call.asks_for)}
            for provider in plan.providers.values()
        },
    }


def _described_hook(hook: Hook, hooks: Sequence[Hook], plan: Plan) -> Described:
    return {
        "hook": hook.label,
        "extension": hook.owner,
        "defined_at": hook.call.defined_at,
        "reads": list(hook.call.asks_for),
        "reads_all": hook.call.takes_rest,
        "provides": [write.name for write in hook.writes if write.defines],
        "modifies": [write.name for write in hook.writes if not write.defines],
        "always": hook.always,
        "priority": hook.priority,
        "because": [str(reason) for reason in reasons_for(hooks, plan.on_demand) if reason.after is hook],
    }


def _branch(place: Place, tree: Tree, plan_of: PlanOf, told: set[str], first: str, rest: str) -> Iterator[str]:
    stage = place.path[-1]
    if stage in told:
        yield f"{first}{stage}  (as above)"
        return
    told.add(stage)
    yield f"{first}{stage}"
    plan = plan_of(stage)
    inner = [other for other in tree.places.values() if other.path[:-1] == place.path]
    bar = f"{rest}│  " if inner else f"{rest}   "
    yield from (f"{bar}{line}" for line in _lines(place, plan))
    for child in inner:
        last = child is inner[-1]
        branch, trunk = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _branch(child, tree, plan_of, told, rest + branch, rest + trunk)


def _lines(place: Place, plan: Plan) -> Iterator[str]:
    """What stands below a stage's name: its fixtures, and the hooks at each of its points."""
    for label, names in (("defines", place.born), ("reads", place.reads), ("changes", place.modifies)):
        if names:
            yield f"{label:8} {', '.join(names if label == 'defines' else sorted(names))}"
    for provider in plan.providers.values():
        yield f"on demand {provider.name} by {provider.label}{_reads(provider.call.asks_for)}"
    for side in SIDES:
        hooks = _at(plan, side)
        for number, hook in enumerate(hooks, start=1):
            if not hook.everywhere:
                yield f"{side:6} {number}. {_told(hook, hooks, plan)}"
    if place.born:
        yield f"ends     {', '.join(place.born)}"


def _everywhere(tree: Tree, plan_of: PlanOf) -> list[str]:
    """The hooks of every stage, told once; their numbers at each stage are left free."""
    plans = [plan_of(place.path[-1]) for place in _first_places(tree)]
    told = [_told(hook, (), plan) for plan in plans for side in SIDES for hook in _at(plan, side) if hook.everywhere]
    return list(dict.fromkeys(told))


def _told(hook: Hook, hooks: Sequence[Hook], plan: Plan) -> str:
    """``GradNorm.post_train_backward of extension 'grad_norm'  reads model, provides grad_norm``, and why here."""
    does = [_reads(hook.call.asks_for, hook.call.takes_rest).strip()]
    for word, defines in (("provides", True), ("modifies", False)):
        names = [write.name for write in hook.writes if write.defines is defines]
        does += [f"{word} {', '.join(names)}"] if names else []
    does += ["also on failure"] if hook.always else []
    why = [str(reason) for reason in reasons_for(hooks, plan.on_demand) if reason.after is hook]
    if not why and hook.priority:
        why = [f"priority {hook.priority}"]
    told = f"{hook.label} of {hook.whose}" + "".join(f"; {part}" for part in does if part)
    return told + (f"  [{'; '.join(why)}]" if why else "")


def _reads(names: Iterable[str], rest: bool = False) -> str:
    listed = [*names, *(["all that is alive"] if rest else [])]
    return f" reads {', '.join(listed)}" if listed else ""


def _touched(name: str, tree: Tree, plan_of: PlanOf) -> Iterator[tuple[str, str]]:
    for place in _first_places(tree):
        stage = place.path[-1]
        plan = plan_of(stage)
        if name in place.reads:
            yield "read by", f"stage {stage!r} itself"
        if name in place.modifies:
            yield "changed by", f"stage {stage!r} itself"
        for side in SIDES:
            for hook in _at(plan, side):
                if any(write.name == name and not write.defines for write in hook.writes):
                    yield "changed by", f"{hook.label} at {side}_{stage}"
                elif name in hook.call.asks_for:
                    yield "read by", f"{hook.label} at {side}_{stage}"
        for provider in plan.providers.values():
            if name in provider.call.asks_for:
                yield "read by", f"{provider.label} for {provider.name!r}, on demand"


def _first_places(tree: Tree) -> list[Place]:
    """Each stage once, at the first place where it opens."""
    return [places[0] for places in tree.stages().values()]


def _at(plan: Plan, side: str) -> tuple[Hook, ...]:
    return {"around": plan.around, "pre": plan.pre, "post": plan.post}[side]
