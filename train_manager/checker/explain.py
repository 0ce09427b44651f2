"""The explanation of a class: what runs where and why, and what lives how long: text, a picture, data for tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from train_manager.checker.picture import Picture, picture
from train_manager.checker.tree import StageNode, StageTree
from train_manager.checker.walk import tree_of
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.core.hooks import KINDS, Hook
from train_manager.core.order import reasons_for
from train_manager.core.plan import Plan, Plans
from train_manager.core.providers import Provider
from train_manager.core.registry import Registry
from train_manager.core.signature import NamedCall


@final
class Text(str):
    """A text that a prompt or a notebook shows with its line breaks, as ``print`` does, and not as a quoted string.

    >>> Text("run\\n└─ train")
    run
    └─ train
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(
    owner: type[Extensible],
    registry: Registry,
    about: str | Extension | None,
    format: str,
    notes: Mapping[str, str],
) -> Text | Picture:
    """Return what runs where, as ``Extensible.explain`` gives it.

    Args:
        owner: the class.
        registry: the extensions of an object of it.
        about: a fixture or an extension; None for the whole tree.
        format: "text", "svg", "json" or "code".
        notes: what is told beside the names of stages.

    Raises:
        ValueError: an unknown format, no stage for the format "code", or a part of the tree as a picture.
    """
    if format == "code":
        if not isinstance(about, str):
            raise ValueError('format="code" takes the name of a stage: explain("train_step_batch", format="code")')
        return Text("\n".join(sequence.text() for sequence in registry.plans[about].sequences if sequence))
    explanation = Explanation(tree_of(owner, registry), registry.plans, notes)
    if format == "json":
        return Text(json.dumps(explanation.data(), indent=2))
    if format == "svg":
        if about is not None:
            raise ValueError('format="svg" draws the whole tree: explain(format="svg")')
        return picture(owner.__name__, explanation.data(), explanation.tree.unknown)
    if format != "text":
        raise ValueError(f"format is {format!r}; give 'text', 'svg', 'json' or 'code'")
    if about is None:
        return Text("\n".join([owner.__name__, *explanation.of_tree()]))
    extension = next((name for name, there in registry.extensions.items() if about in (name, there)), None)
    lines = explanation.of_fixture(str(about)) if extension is None else explanation.of_extension(extension)
    return Text("\n".join(lines))


@final
@dataclass(frozen=True)
class Point:
    """The hooks of one side of one stage, in order; its methods tell about one of them."""

    kind: str
    hooks: Sequence[Hook]
    plan: Plan

    def reasons(self, hook: Hook) -> list[str]:
        return [str(reason) for reason in reasons_for(self.hooks, self.plan.lazy) if reason.after is hook]

    def told(self, hook: Hook) -> str:
        """Return ``GradNorm.post_train_backward of extension 'grad_norm'; reads model; provides grad_norm`` and why."""
        does = [_reads(hook.call)]
        for word, defines in (("provides", True), ("modifies", False)):
            names = [write.name for write in hook.writes if write.defines is defines]
            does += [f"{word} {', '.join(names)}"] if names else []
        does += ["also on failure"] if hook.always else []
        reasons = self.reasons(hook) or ([f"priority {hook.priority}"] if hook.priority else [])
        told = "; ".join([f"{hook.label} of {hook.whose}", *filter(None, does)])
        return f"{told}  [{'; '.join(reasons)}]" if reasons else told

    def data(self, hook: Hook) -> dict[str, Any]:
        return {
            "hook": hook.label,
            "extension": hook.owner,
            "defined_at": hook.call.defined_at,
            "reads": list(hook.call.parameters),
            "reads_all": hook.call.takes_rest,
            "provides": [write.name for write in hook.writes if write.defines],
            "modifies": [write.name for write in hook.writes if not write.defines],
            "always": hook.always,
            "priority": hook.priority,
            "because": self.reasons(hook),
        }


@final
@dataclass(frozen=True)
class Explanation:
    """Tells about a stage tree and the plans of its stages."""

    tree: StageTree
    plans: Plans
    notes: Mapping[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)  # stages that have been told

    def points(self, node: StageNode) -> list[Point]:
        plan = self.plans[node.stage]
        hooks = {"around": plan.around, "pre": plan.pre, "post": plan.post}
        return [Point(kind, hooks[kind], plan) for kind in KINDS]

    def hooks(self, node: StageNode) -> Iterator[tuple[Point, int, Hook]]:
        """Yield the hooks of a stage, each with its point and its number there."""
        return ((point, number, hook) for point in self.points(node) for number, hook in enumerate(point.hooks, 1))

    def providers(self, node: StageNode) -> Iterable[Provider]:
        return self.plans[node.stage].providers.values()

    def first_nodes(self) -> list[StageNode]:
        """Return each stage once, at the first position at which it opens."""
        return [nodes[0] for nodes in self.tree.stages.values()]

    def data(self) -> list[dict[str, Any]]:
        """Return the tree as plain lists, dicts and strings, one entry for each stage at each position."""
        return [
            {
                "stage": node.stage,
                "path": list(node.path),
                "note": self.notes.get(node.stage, ""),
                "defines": dict(sorted(node.definers.items())),
                "reads": sorted(node.reads),
                "modifies": sorted(node.modifies),
                "hooks": {point.kind: [point.data(hook) for hook in point.hooks] for point in self.points(node)},
                "lazy": {
                    provider.name: {"by": provider.label, "reads": list(provider.call.parameters)}
                    for provider in self.providers(node)
                },
            }
            for node in self.tree.nodes.values()
        ]

    # ---- the whole tree ------------------------------------------------------------------------------------------

    def of_tree(self) -> Iterator[str]:
        """Yield the lines of the tree; the second time that a stage opens, only its name is told."""
        hooks = [(point.plan, hook) for node in self.first_nodes() for point, _, hook in self.hooks(node)]
        # Told once, so without the other hooks of a point: the order among them differs from stage to stage.
        everywhere = [Point("", (), plan).told(hook) for plan, hook in hooks if hook.everywhere]
        yield from (f"at every stage: {told}" for told in dict.fromkeys(everywhere))
        for node in self.tree.nodes.values():
            if len(node.path) == 1:
                yield from self.branch(node, "", "")
        yield from (f"unknown: {what}" for what in self.tree.unknown)

    def branch(self, node: StageNode, first: str, rest: str) -> Iterator[str]:
        """Yield the lines of a stage and of the stages inside; ``first`` stands before its name, ``rest`` below."""
        if node.stage in self.told:
            yield f"{first}{node.stage}  (as above)"
            return
        self.told.add(node.stage)
        yield f"{first}{node.stage}" + (f"  ({self.notes[node.stage]})" if node.stage in self.notes else "")
        inner = [other for other in self.tree.nodes.values() if other.path[:-1] == node.path]
        yield from (f"{rest}{'│' if inner else ' '}  {line}" for line in self.below(node))
        for child in inner:
            branch, trunk = ("└─ ", "   ") if child is inner[-1] else ("├─ ", "│  ")
            yield from self.branch(child, rest + branch, rest + trunk)

    def below(self, node: StageNode) -> Iterator[str]:
        """Yield the lines below the name of a stage: its fixtures, and the hooks at each of its points."""
        fixtures = {"defines": [*node.definers], "reads": sorted(node.reads), "changes": sorted(node.modifies)}
        yield from (f"{label:8} {', '.join(names)}" for label, names in fixtures.items() if names)
        for provider in self.providers(node):
            yield f"lazy     {provider.name} by {provider.label} {_reads(provider.call)}".rstrip()
        for point, number, hook in self.hooks(node):
            if not hook.everywhere:
                yield f"{point.kind:6} {number}. {point.told(hook)}"
        if node.definers:
            yield f"ends     {', '.join(node.definers)}"

    # ---- one fixture, one extension ------------------------------------------------------------------------------

    def of_fixture(self, name: str) -> Iterator[str]:
        """Yield the life of one fixture: which stage owns it, what defines, reads and changes it, and where it ends."""
        owners = [nodes for nodes in self.tree.stages.values() if any(name in node.definers for node in nodes)]
        yield f"{name!r}" if owners else f"no stage, hook or provider that can be read defines {name!r}"
        for nodes in owners:
            definer = next(node.definers[name] for node in nodes if name in node.definers)
            yield f"  lives in stage {nodes[0].stage!r}, defined by {definer or 'it'}; ends with it"
        for node in self.first_nodes():
            yield from (f"  {does:11} {what}" for does, what in self.touching(name, node))

    def touching(self, name: str, node: StageNode) -> Iterator[tuple[str, str]]:
        """Yield what reads or changes a fixture in one stage."""
        if name in node.reads:
            yield "read by", f"stage {node.stage!r} itself"
        if name in node.modifies:
            yield "changed by", f"stage {node.stage!r} itself"
        for point, _, hook in self.hooks(node):
            if any(write.name == name and not write.defines for write in hook.writes):
                yield "changed by", f"{hook.label} at {point.kind}_{node.stage}"
            elif name in hook.call.parameters:
                yield "read by", f"{hook.label} at {point.kind}_{node.stage}"
        for provider in self.providers(node):
            if name in provider.call.parameters:
                yield "read by", f"{provider.label} for the lazy fixture {provider.name!r}"

    def of_extension(self, name: str) -> Iterator[str]:
        """Yield what one extension does: its hooks, each with its number at its point, and its lazy fixtures."""
        yield f"extension {name!r}"
        for node in self.first_nodes():
            for point, number, hook in self.hooks(node):
                if hook.owner == name:
                    yield f"  at {point.kind}_{node.stage}, {number} of {len(point.hooks)}: {point.told(hook)}"
            for provider in self.providers(node):
                if provider.owner == name:
                    yield f"  in {node.stage}: provides {provider.name} {_reads(provider.call)}".rstrip()


def _reads(call: NamedCall) -> str:
    names = [*call.parameters, *(["all that is alive"] if call.takes_rest else [])]
    return f"reads {', '.join(names)}" if names else ""
