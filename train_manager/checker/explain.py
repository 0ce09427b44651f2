"""The explanation of a class: its stages with their hooks, and the life of its fixtures: text, picture, or data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import isfunction
from typing import Any, Final, final

from train_manager.checker.methods import Methods
from train_manager.checker.picture import Picture, picture
from train_manager.checker.tree import Path, StageNode, StageTree
from train_manager.checker.walk import stage_tree
from train_manager.core.calls import NamedCall
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extension
from train_manager.core.hooks import HOW_HOOKS_ARE_CALLED, KINDS, Hook, Provider
from train_manager.core.order import reasons_for
from train_manager.core.plan import Plan
from train_manager.core.registry import Registry
from train_manager.telling.wrapping import WIDTH, wrap_text

LIBRARY: Final = Extensible.__module__.partition(".")[0]  # "train_manager"


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
    *,
    all: bool,
) -> Text | Picture:
    """Return the explanation of a class, as ``Extensible.explain`` gives it.

    Args:
        owner: the class.
        registry: the extensions of an object of it.
        about: a fixture or an extension; None for the whole tree.
        format: "text", "svg", "json" or "code".
        notes: remarks beside the names of stages.
        all: the text has each stage, with its fixtures.

    Raises:
        ValueError: an unknown format, no stage for the format "code", or a picture of anything but the whole tree.
    """
    if format == "code":
        if not isinstance(about, str):
            raise ValueError('format="code" takes the name of a stage: explain("train_step_batch", format="code")')
        return Text("\n".join(sequence.text() for sequence in registry.plans[about].sequences if sequence))
    explanation = (Explanation if all else Brief)(
        stage_tree(Methods(owner), registry.plans.__getitem__), registry, notes
    )
    if format == "json":
        return Text(json.dumps(explanation.data(), indent=2))
    if format == "svg":
        if about is not None:
            raise ValueError('format="svg" draws the whole tree: explain(format="svg")')
        return picture(owner.__name__, explanation.data(), explanation.tree.unknown)
    if format != "text":
        raise ValueError(f"format is {format!r}; give 'text', 'svg', 'json' or 'code'")
    if about is None:
        return Text("\n".join(explanation.of_tree(owner.__name__)))
    extension = next((name for name, there in registry.extensions.items() if about in (name, there)), None)
    lines = explanation.of_fixture(str(about)) if extension is None else explanation.of_extension(extension)
    return Text("\n".join(lines))


@final
@dataclass(frozen=True)
class HookPoint:
    """The hooks of one kind at one stage, in order; each method describes one of them."""

    kind: str
    hooks: Sequence[Hook]
    plan: Plan

    def reasons(self, hook: Hook) -> list[str]:
        return [str(reason) for reason in reasons_for(self.hooks, self.plan.lazy) if reason.after is hook]

    def describe_hook(self, hook: Hook) -> str:
        """Return ``GradNorm.post_train_backward of extension 'grad_norm'; reads model  [why it is at this place]``."""
        does = [_reads(hook.call)]
        for word, defines in (("provides", True), ("modifies", False)):
            names = [write.name for write in hook.writes if write.defines is defines]
            does += [f"{word} {', '.join(names)}"] if names else []
        does += ["also on failure"] if hook.always else []
        reasons = self.reasons(hook) or ([f"priority {hook.priority}"] if hook.priority else [])
        described = "; ".join([f"{hook.label} of {hook.whose}", *filter(None, does)])
        return f"{described}  [{'; '.join(reasons)}]" if reasons else described

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


@dataclass(frozen=True)
class Explanation:
    """Describes a stage tree, and the hooks and providers of its stages."""

    tree: StageTree
    registry: Registry
    notes: Mapping[str, str] = field(default_factory=dict)  # by stage, shown beside its name
    described: set[str] = field(default_factory=set)  # the stages that the text has so far

    def points(self, node: StageNode) -> list[HookPoint]:
        plan = self.registry.plans[node.stage]
        hooks = {"around": plan.around, "pre": plan.pre, "post": plan.post}
        return [HookPoint(kind, hooks[kind], plan) for kind in KINDS]

    def hooks(self, node: StageNode) -> Iterator[tuple[HookPoint, int, Hook]]:
        """Yield the hooks of a stage, each with its point and its number there."""
        return ((point, number, hook) for point in self.points(node) for number, hook in enumerate(point.hooks, 1))

    def providers(self, node: StageNode) -> Iterable[Provider]:
        return self.registry.plans[node.stage].providers.values()

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

    def of_tree(self, name: str) -> Iterator[str]:
        """Yield the lines of the tree; a stage that opens at several positions is described at the first."""
        yield name
        hooks = [(point.plan, hook) for node in self.first_nodes() for point, _, hook in self.hooks(node)]
        # Hooks of every stage are described once, and so without their reasons: their order differs between stages.
        everywhere = [HookPoint("", (), plan).describe_hook(hook) for plan, hook in hooks if hook.everywhere]
        for text in dict.fromkeys(everywhere):
            yield from _lines("", f"at every stage: {text}", "    ")
        # The outermost stages; each draws the stages inside it.
        for node in self.shown():
            if len(node.path) == 1:
                yield from self.branch(node, "", "")
        for what in self.tree.unknown:
            yield from _lines("", f"unknown: {what}", "    ")

    def shown(self) -> Iterable[StageNode]:
        """Return the stages that the text has, at each of their positions."""
        return self.tree.nodes.values()

    def branch(self, node: StageNode, first: str, rest: str) -> Iterator[str]:
        """Yield the lines of a stage and of the stages inside; ``first`` stands before its name, ``rest`` below."""
        if node.stage in self.described:
            yield from _lines(first, f"{node.stage}  (as above)", f"{rest}   ")
            return
        self.described.add(node.stage)
        inner = [other for other in self.shown() if other.path[:-1] == node.path]
        below = f"{rest}{'│' if inner else ' '}  "  # the trunk that leads down to the stages inside
        note = f"  ({self.notes[node.stage]})" if node.stage in self.notes else ""
        yield from _lines(first, f"{node.stage}{note}", below)
        for label, text in self.below(node):
            yield from _lines(below + label, text, below + " " * len(label))
        for child in inner:
            branch, trunk = ("└─ ", "   ") if child is inner[-1] else ("├─ ", "│  ")
            yield from self.branch(child, rest + branch, rest + trunk)

    def below(self, node: StageNode) -> Iterator[tuple[str, str]]:
        """Yield the lines below the name of a stage, with their labels: its fixtures, and its hooks."""
        fixtures = {"defines": [*node.definers], "reads": sorted(node.reads), "changes": sorted(node.modifies)}
        yield from ((f"{label:8} ", ", ".join(names)) for label, names in fixtures.items() if names)
        yield from (_of_provider(provider) for provider in self.providers(node))
        yield from (_of_hook(*one) for one in self.hooks(node) if not one[-1].everywhere)
        if node.definers:
            yield "ends     ", ", ".join(node.definers)

    # ---- one fixture, one extension ------------------------------------------------------------------------------

    def of_fixture(self, name: str) -> Iterator[str]:
        """Yield the life of one fixture: which stage owns it, what defines, reads and changes it, and where it ends."""
        owners = [nodes for nodes in self.tree.stages.values() if any(name in node.definers for node in nodes)]
        yield f"{name!r}" if owners else f"no stage, hook or provider that can be read defines {name!r}"
        for nodes in owners:
            definer = next(node.definers[name] for node in nodes if name in node.definers)
            yield from _lines("  ", f"lives in stage {nodes[0].stage!r}, and ends with it", "      ")
            yield from _lines("  defined by  ", definer or "the stage", " " * 14)
        for node in self.first_nodes():
            for does, what in self.touching(name, node):
                yield from _lines(f"  {does:11} ", what, " " * 14)

    def touching(self, name: str, node: StageNode) -> Iterator[tuple[str, str]]:
        """Yield the readers and the modifiers of a fixture in one stage."""
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
        """Yield the hooks of one extension, each with its number at its point, and its lazy fixtures."""
        yield f"extension {name!r}"
        for node in self.first_nodes():
            for point, number, hook in self.hooks(node):
                if hook.owner == name:
                    place = f"at {point.kind}_{node.stage}, {number} of {len(point.hooks)}"
                    yield from _lines("  ", f"{place}: {point.describe_hook(hook)}", "      ")
            for provider in self.providers(node):
                if provider.owner == name:
                    provides = f"in {node.stage}: provides {provider.name} {_reads(provider.call)}"
                    yield from _lines("  ", provides, "      ")


@final
class Brief(Explanation):
    """Shows the stages with hooks of the user's; without such hooks, the stages with hooks of extensions."""

    @cached_property
    def stages(self) -> set[str]:
        """The stages whose hooks are shown; none if no extension has a hook."""
        return self.stages_with(self.is_own) or self.stages_with(lambda maker: bool(maker.owner))

    def stages_with(self, condition: Callable[[Hook | Provider], bool]) -> set[str]:
        return {node.stage for node in self.first_nodes() if any(map(condition, self.makers(node)))}

    def makers(self, node: StageNode) -> dict[Hook | Provider, tuple[str, str]]:
        """Return the hooks and the providers that a stage shows, each with its label and its text."""
        providers = [one for one in self.providers(node) if one.owner or self.is_own(one)]
        hooks = [one for one in self.hooks(node) if not one[-1].everywhere]
        return {one: _of_provider(one) for one in providers} | {one[-1]: _of_hook(*one) for one in hooks}

    @cached_property
    def paths(self) -> set[Path]:
        """The positions of ``stages``, and of the stages around them; all positions if no extension has a hook."""
        # A stage is shown with the way that leads to it.
        ends = [node.path for node in self.tree.nodes.values() if node.stage in self.stages or not self.stages]
        return {path[:length] for path in ends for length in range(1, len(path) + 1)}

    def shown(self) -> Iterable[StageNode]:
        return (node for path, node in self.tree.nodes.items() if path in self.paths)

    @cached_property
    def has_marks(self) -> bool:
        """Whether a star marks the user's hooks: only if hooks of both kinds are shown."""
        nodes = [node for node in self.first_nodes() if node.stage in self.stages]
        return len({self.is_own(maker) for node in nodes for maker in self.makers(node)}) == 2

    def of_tree(self, name: str) -> Iterator[str]:
        yield from super().of_tree(f"{name}  (* marks hooks of your own)" if self.has_marks else name)
        if not self.registry.hooks:
            yield f"no hooks so far; {HOW_HOOKS_ARE_CALLED}"
        left_out = len(self.tree.stages) - len({path[-1] for path in self.paths})
        stages = f"{left_out} of {len(self.tree.stages)} stages, and " if left_out else ""
        yield f"left out: {stages}all fixtures; explain(all=True) shows them"

    def below(self, node: StageNode) -> Iterator[tuple[str, str]]:
        if node.stage in self.stages:
            for maker, (label, text) in self.makers(node).items():
                mark = "* " if self.is_own(maker) else "  "
                yield f"{mark if self.has_marks else ''}{label}", text

    def is_own(self, maker: Hook | Provider) -> bool:
        """Return whether the code of a hook or provider is the user's, and not of this library."""
        # A callable object, such as a `partial`, says nothing: then the class of the extension counts.
        function = getattr(maker.call.function, "__func__", maker.call.function)
        written = function if isfunction(function) else type(self.registry.extensions.get(maker.owner))
        module = str(written.__module__)
        # Hooks by `Extension.of` have a class of this library, made of the user's functions.
        return module.partition(".")[0] != LIBRARY or module == Extension.__module__


def _of_hook(point: HookPoint, number: int, hook: Hook) -> tuple[str, str]:
    return f"{point.kind:6} {number}. ", point.describe_hook(hook)


def _of_provider(provider: Provider) -> tuple[str, str]:
    return "lazy     ", f"{provider.name} by {provider.label} {_reads(provider.call)}".rstrip()


def _lines(first: str, text: str, rest: str) -> Iterator[str]:
    """Break a text into lines; ``first`` stands before the first of them, ``rest`` before the others.

    A remark behind two spaces that does not fit begins a line of its own. A path stays whole: terminals open it.
    """
    for remark in [text] if len(first + text) <= WIDTH else text.split("  "):
        yield from wrap_text(first, remark, rest, WIDTH, breaks_words=os.sep not in text)
        first = rest


def _reads(call: NamedCall) -> str:
    """Return ``reads model, loss``; empty if the call reads no fixture."""
    names = [*call.parameters, *(["all that is alive"] if call.takes_rest else [])]
    return f"reads {', '.join(names)}" if names else ""
