"""The stage tree of a class: the positions at which its stages open, and the fixtures that may be alive at each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any, final

from train_manager.checker.method_source import ANYTHING
from train_manager.core.hooks import KINDS

Path = tuple[str, ...]


@final
@dataclass
class StageNode:
    """One stage at one position of the tree."""

    path: Path  # names of the stages from the outermost to this one
    # The methods that call each other, from the one that is called from outside to the one that opens the stage.
    callers: tuple[FunctionType, ...] = ()
    # Names that may be alive as the hooks of each kind run.
    alive: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    # Names that the stage may own, each with its definer: a line, or the label of a hook or provider.
    definers: dict[str, str] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)  # names that the code of the stage reads
    modifies: set[str] = field(default_factory=set)  # names that the code of the stage modifies

    @property
    def stage(self) -> str:
        return self.path[-1]

    def may_have(self, kind: str, name: str) -> bool:
        """Return whether a name may be alive as the hooks of one kind run."""
        return name in self.alive[kind] or ANYTHING in self.alive[kind]


@final
@dataclass
class StageTree:
    """All positions at which stages open, in the order of the source, and the code that cannot be followed."""

    nodes: dict[Path, StageNode] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)  # descriptions of code; a dict, because a set has no order
    any_stage: bool = False  # stages may open whose names are unknown
    # For each method that is called by fixture names, and each name that it requires: all names that may be alive at
    # the calls.
    called_by_name: dict[tuple[Any, str], set[str]] = field(default_factory=dict)

    @cached_property
    def stages(self) -> dict[str, list[StageNode]]:
        """The nodes of each stage name; only for a finished tree."""
        found: dict[str, list[StageNode]] = {}
        for node in self.nodes.values():
            found.setdefault(node.stage, []).append(node)
        return found
