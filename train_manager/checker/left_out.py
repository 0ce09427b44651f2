"""The call that an override leaves out: why a stage that a base class opens never opens in a subclass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import final

from train_manager.checker.methods import Methods
from train_manager.checker.tree import StageNode
from train_manager.checker.walk import stage_tree
from train_manager.core.extensible import Extensible
from train_manager.core.plan import Plan
from train_manager.telling.source_locations import line_of_function


@final
@dataclass(frozen=True)
class LeftOut:
    """A call that an override does not make, though the method that it overrides does."""

    override: FunctionType  # the method of the subclass
    called: tuple[str, ...]  # names of methods: a call of any of them would lead to the stage
    around: str | None  # the stage around the one that never opens; None if there is none

    def __str__(self) -> str:
        name = ".".join(self.override.__qualname__.split(".")[-2:])
        called = " or ".join(f"self.{other}()" for other in self.called)
        return f"{name} ({line_of_function(self.override)}) does not call {called}"


def call_left_out(methods: Methods, stage: str, plan_of: Callable[[str], Plan]) -> LeftOut | None:
    """Return the call without which a stage that a base class opens does not open in a class; None if none is found."""
    # In the base class, a chain of calls leads to the stage. The first method of the chain that the subclass overrides
    # without a way to the next one is the place where the chain breaks.
    for node in _inherited_nodes(methods.owner, stage, plan_of):
        for number, caller in enumerate(node.callers[:-1], 1):
            override, inner = (methods.named(function.__name__) for function in (caller, node.callers[number]))
            if override is not None and override is not caller and inner not in methods.reachable(override):
                around = node.path[-2] if len(node.path) > 1 else None
                return LeftOut(override, _public(node.callers[number:]), around)
    return None


def _public(methods: Sequence[FunctionType]) -> tuple[str, ...]:
    """Return the names of the public methods, which a subclass may call; the first name if all are private."""
    names = [function.__name__ for function in methods]
    return tuple(name for name in names if not name.startswith("_")) or (names[0],)


def _inherited_nodes(owner: type, stage: str, plan_of: Callable[[str], Plan]) -> Iterator[StageNode]:
    """Yield the first position of a stage in the tree of each base class."""
    for base in owner.__mro__[1:]:
        if issubclass(base, Extensible):
            yield from stage_tree(Methods(base), plan_of).stages.get(stage, [])[:1]
