"""The advice for a wrong fixture: the name that was meant, the hook at which it is alive, the extension that has it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple, final

from train_manager.checker.method_source import ANYTHING
from train_manager.checker.tree import StageNode, StageTree
from train_manager.core.hooks import Hook, Provider
from train_manager.telling.errors import near
from train_manager.telling.words import CLOSE, Words, fixture_of, suggestion

NOT_DEFINED = "nothing defines it; give the parameter a default if it may be absent"


class LivePoint(NamedTuple):
    """A point at which a fixture is alive, seen from the stage that asks for it."""

    asked: StageNode  # the stage of the hook or provider that asks
    node: StageNode  # the stage at which the fixture is alive
    kind: str  # of the hooks at which it is alive: one of KINDS

    @property
    def distance(self) -> tuple[bool, int]:
        """Whether it is in another branch, and the number of stages to leave and to enter."""
        asked, path = self.asked.path, self.node.path
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(asked, path, strict=False)))
        return common < min(len(asked), len(path)), len(asked) + len(path) - 2 * common


@final
@dataclass(frozen=True)
class Advice:
    """Finds the cure for a fixture that is not alive where a hook or provider asks for it."""

    asker: Hook | Provider
    nodes: Sequence[StageNode]  # the positions at which the stage of the asker opens
    kind: str  # the side of the stage at which it asks: one of KINDS
    tree: StageTree  # of the run
    known: Set[str]  # names of the fixtures that need no stage
    words: Words  # the names that the fixtures have in other tools

    @cached_property
    def here(self) -> set[str]:
        """The names that are alive at the point."""
        return set().union(*(node.alive[self.kind] for node in self.nodes)) - {ANYTHING} | self.known

    @cached_property
    def defined(self) -> set[str]:
        """The names that some stage of the run defines."""
        nodes = self.tree.nodes.values()
        return {name for node in nodes for name in node.definers if name in node.alive["post"]}

    def of(self, name: str) -> tuple[str, list[str]]:
        """Return the cure for a name that is not alive at the point, and the names that may be meant, best first."""
        # A name that may be meant is the best cure, with the hook to use if it is not alive here either.
        meant = self.find_suggestions(name)
        if meant:
            fixture = fixture_of(meant[0])
            return suggestion(meant[0]) + ("" if fixture in self.here else f" {self.use(fixture)}"), meant
        if name in self.defined:  # spelt right, but asked for at the wrong point
            later = "it is defined later: " if self.is_later(name) else ""
            return f"{later}{self.use(name)}", []
        extension = self.words.extension_for(name)
        if extension is None:
            return NOT_DEFINED, []
        return extension.cure + ("" if self.is_open(extension.stage) else f"; use post_{extension.stage}"), []

    def find_suggestions(self, name: str) -> list[str]:
        """Return the names that may be meant, with names that are alive at the point first."""
        words = self.words.words_for(name, self.here)
        if name in self.defined:  # it exists: only a table may say that another name is meant, not a likeness
            return words
        now = [*near(name, self.here, CLOSE), *words]
        extension = self.words.extension_for(name)
        if now or (extension and self.is_open(extension.stage)):
            return now
        # Nothing here, and no extension could provide it here: then names that are alive elsewhere, the nearest first.
        meant = self.words.words_for(name, self.defined)
        elsewhere = sorted(meant, key=lambda word: self.nearest(fixture_of(word)).distance)
        return [*elsewhere, *near(name, self.here | self.defined)]

    def describe_owner(self, name: str) -> str:
        """Return a clause with the stage that owns a name which is alive elsewhere."""
        return f"it lives in stage {self.owner(name)!r}"

    def owner(self, name: str) -> str:
        """Return the stage that owns a name at the nearest point."""
        path = self.nearest(name).node.path
        around = (self.tree.nodes[path[:depth]] for depth in range(len(path), 0, -1))
        return next(node.stage for node in around if name in node.definers)

    def is_later(self, name: str) -> bool:
        """Return whether a name comes alive at the end of the stage that asks, or of a stage around it."""
        place = self.nearest(name)
        is_around = place.asked.path[: len(place.node.path)] == place.node.path
        return is_around and isinstance(self.asker, Hook)

    def use(self, name: str) -> str:
        """Return the nearest hook at which a name is alive, and the summary of it that the point itself has."""
        if isinstance(self.asker, Provider):
            return f'provide it there: @fixture("{self.owner(name)}")'
        place = self.nearest(name)
        hooks = [*self.before(name, place), f"{place.kind}_{place.node.stage}"]
        return "; ".join([f"use {' or '.join(hooks)}", *self.summary(name)])

    def before(self, name: str, place: LivePoint) -> list[str]:
        """Return the first pre hook inside of the stage, if the point asks too early and a name is alive there."""
        is_early = self.kind != "post" and place.node is place.asked
        inside = (node for node in self.tree.nodes.values() if node.path[:-1] == place.node.path)
        return [f"pre_{node.stage}" for node in inside if is_early and name in node.alive["pre"]][:1]

    def summary(self, name: str) -> list[str]:
        """Return the summary of a name that has ended, such as its mean, which is alive at the point or could be."""
        here = self.words.summary_of(name, self.here)
        if here or self.kind != "post":
            return [here] if here else []
        what, names = self.words.summaries.get(name, ("", ()))
        provided = (self.words.extension_for(other) for other in names)
        return [f"for {what}, {one.cure}" for one in provided if one and self.is_open(one.stage)]

    def is_open(self, stage: str) -> bool:
        return all(stage in node.path for node in self.nodes)

    def nearest(self, name: str) -> LivePoint:
        """Return the nearest point at which a name is alive that some stage defines."""
        kinds = (self.kind, "post", "pre")  # `min` returns the first of equals: the asker's own side is preferred
        nodes = [(asked, node) for asked in self.nodes for node in self.tree.nodes.values()]
        places = [LivePoint(asked, node, kind) for kind in kinds for asked, node in nodes if name in node.alive[kind]]
        return min(places, key=lambda place: place.distance)
