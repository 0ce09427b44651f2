"""The stage tree of a class, walked without running it: at which points its stages open, and what is alive there.

The roots are the methods that no other method calls. A walk starts at each (or at one, for a run that is entered
there) and follows the outlines; hooks and providers add what they define on the way.
"""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, final

from train_manager.checker.method_source import ANYTHING, Names, method
from train_manager.checker.outline import (
    Calls,
    Defines,
    Loops,
    Node,
    Opens,
    Touches,
    Unknown,
    Yields,
    outline,
)
from train_manager.core.decorators import declarations_of
from train_manager.core.hooks import KINDS, Hook
from train_manager.core.plan import Plan

Path = tuple[str, ...]
DOORS = frozenset({"fixtures", "extensible", "train_manager"})  # through which a hook can write what it likes
MOST_STEPS = 50_000  # a class that is read whole takes some hundred; methods that all call each other, without end
STANDARD = sysconfig.get_path("stdlib")
NEVER_LOOKED_INTO = "train_manager.core."  # the core's own methods open no stages of their own


@final
@dataclass
class Place:
    """One stage at one place of the tree.

    Attributes:
        path: names of the stages from the outermost to this one.
        entered: what may be alive as its around-hooks enter.
        before: what may be alive as its pre hooks run.
        after: what may be alive as its post hooks run.
        born: what it may own, and who defines it: a line, or a hook's or provider's label.
        reads: what its own code reads.
        modifies: what its own code modifies.
    """

    path: Path
    entered: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)
    born: dict[str, str] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    modifies: set[str] = field(default_factory=set)

    def knows(self, kind: str, name: str) -> bool:
        """Whether a name may be alive for the hooks of one kind."""
        alive = {"around": self.entered, "pre": self.before, "post": self.after}[kind]
        return name in alive or ANYTHING in alive


@final
@dataclass
class Tree:
    """All places, in the order the walk came to them, and what it could not know."""

    places: dict[Path, Place] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)  # a set that keeps its order
    any_stage: bool = False  # stages may open whose names are not known
    called_by_name: dict[tuple[Any, str], set[str]] = field(default_factory=dict)
    """For each method that is called by fixture names, and each that it requires: all that may be alive there."""
    leaked: set[str] = field(default_factory=set)  # alive where unknown code runs, which may call any method
    cut_short: bool = False  # the walk was given up: anything may be alive anywhere

    def stages(self) -> dict[str, list[Place]]:
        """The places of each stage name."""
        found: dict[str, list[Place]] = {}
        for place in self.places.values():
            found.setdefault(place.path[-1], []).append(place)
        return found


def stage_tree(owner: type, plan_of: Callable[[str], Plan], entries: Iterable[str] | None = None) -> Tree:
    """Walk the methods of a class.

    Args:
        owner: a subclass of Extensible.
        plan_of: what runs at a stage, in order.
        entries: names of the methods to start at; None starts at every root.
    """
    functions = _own_functions(owner)
    if entries is None:
        called = {
            inner
            for function in functions.values()
            for inner in _called_by(outline(function, owner))
            if inner is not function
        }
        starts = [f for name, f in functions.items() if f not in called and not _is_hook_or_provider(name, f)]
    else:
        starts = [functions[name] for name in entries]
    walk = _Walk(owner, plan_of)
    for function in starts:
        walk.begin(function)
    for name, function in functions.items() if entries is None else ():  # those that only call each other
        if function not in walk.begun and not _is_hook_or_provider(name, function):
            walk.begin(function)
    anywhere = {ANYTHING} if walk.tree.cut_short else walk.tree.leaked
    for place in walk.tree.places.values():
        for alive in (place.entered, place.before, place.after):
            alive |= anywhere
    return walk.tree


def _own_functions(owner: type) -> dict[str, FunctionType]:
    """The methods of a class by name, those of the core and of foreign bases without stages left out."""
    names = [name for cls in reversed(owner.__mro__) for name in vars(cls)]
    found = {name: method(owner, name) for name in dict.fromkeys(names)}
    return {name: function for name, function in found.items() if function is not None and _is_relevant(function)}


def _is_relevant(function: FunctionType) -> bool:
    module = function.__module__ or ""  # a class made by exec has none
    file = function.__code__.co_filename
    is_standard = file.startswith("<frozen ") or (file.startswith(STANDARD) and "site-packages" not in file)
    return not is_standard and not module.startswith((NEVER_LOOKED_INTO, "torch."))


def _is_hook_or_provider(name: str, function: FunctionType) -> bool:
    return name.partition("_")[0] in KINDS or declarations_of(function).fixture_of is not None


def _called_by(nodes: Iterable[Node]) -> Iterable[FunctionType]:
    for node in nodes:
        if isinstance(node, Calls):
            yield node.function
        if isinstance(node, Calls | Opens | Loops):
            yield from _called_by(node.body)


@dataclass
class _Open:
    """A stage that the walk is inside of."""

    place: Place
    names: set[str]
    walked: dict[FunctionType, int] = field(default_factory=dict)  # methods, with how much alive


@final
@dataclass
class _Walk:
    """One pass over the outlines, with the stack of stages that are open."""

    owner: type
    plan_of: Callable[[str], Plan]
    tree: Tree = field(default_factory=Tree)
    stack: list[_Open] = field(default_factory=list)
    outside: set[str] = field(default_factory=set)  # what may be alive though no stage is seen to be open
    walked: dict[FunctionType, int] = field(default_factory=dict)  # outside of all stages: with how much alive
    begun: set[FunctionType] = field(default_factory=set)
    steps: int = 0

    def begin(self, function: FunctionType) -> None:
        """Walk a method that is called from outside, with no stage open."""
        self.outside, self.walked = set(), {function: 0}
        self.begun.add(function)
        try:
            self.through(outline(function, self.owner), (function,), None)
        except RecursionError:  # calls that go hundreds of methods deep
            self.stack.clear()
            self.give_up()

    def give_up(self) -> None:
        self.tree.unknown.setdefault(f"all the ways that calls take through {self.owner.__name__}: too many")
        self.tree.any_stage = self.tree.cut_short = True

    def through(self, nodes: Iterable[Node], callers: tuple[FunctionType, ...], at_yield: partial[None] | None) -> None:
        """Walk nodes in turn.

        Args:
            nodes: what is walked.
            callers: the methods that lead here, so that a recursion is entered once.
            at_yield: walks the body of the `with` or `for` that has called this method.
        """
        for node in nodes:
            self.steps += 1
            if self.steps > MOST_STEPS:
                self.give_up()
                return
            if isinstance(node, Opens):
                self.stage(node, callers, at_yield)
            elif isinstance(node, Defines):
                self.define(node.names, node.stage, node.line)
            elif isinstance(node, Touches):
                self.touch(node)
            elif isinstance(node, Loops):
                self.loop(node, callers, at_yield)
            elif isinstance(node, Calls):
                self.call(node, callers, at_yield)
            elif isinstance(node, Yields):
                if at_yield is not None:
                    at_yield()
            else:
                self.unknown(node)

    def stage(self, node: Opens, callers: tuple[FunctionType, ...], at_yield: partial[None] | None) -> None:
        if node.stage is None:
            self.tree.unknown.setdefault(f"a stage whose name is made at run time ({node.line})")
            self.tree.any_stage = True
            self.stack.append(_Open(Place(self.path), {ANYTHING}))  # and so are the hooks that run there
            self.through(node.body, callers, at_yield)
            self.stack.pop()
            return
        path = (*self.path, node.stage)
        place = self.tree.places.setdefault(path, Place(path))
        if self.path.count(node.stage) > 1:  # a recursion: one round of it shows all that can be alive
            return
        self.stack.append(_Open(place, set()))
        plan = self.plan_of(node.stage)
        self.define(node.given, None, node.line)
        for provider in plan.providers.values():
            self.define(frozenset({provider.name}), None, provider.label)
        place.entered |= self.alive
        self.hooks(plan.pre)
        place.before |= self.alive
        self.through(node.body, callers, at_yield)
        self.hooks(plan.post)
        place.after |= self.alive
        self.stack.pop()

    def hooks(self, hooks: Iterable[Hook]) -> None:
        for hook in hooks:
            for write in hook.writes:
                if write.defines:
                    self.define(frozenset({write.name}), write.stage, hook.label)
            for names, stage in writes_inside(hook):
                self.define(names, stage, hook.label)

    def loop(self, node: Loops, callers: tuple[FunctionType, ...], at_yield: partial[None] | None) -> None:
        """What a round defines outside of its own stages is alive in the next round."""
        before = len(self.alive)
        self.through(node.body, callers, at_yield)
        if len(self.alive) > before:
            self.through(node.body, callers, at_yield)

    def call(self, node: Calls, callers: tuple[FunctionType, ...], at_yield: partial[None] | None) -> None:
        body = partial(self.through, node.body, callers, at_yield) if node.body else None
        if body is None and not self.is_news(node.function):
            return
        if callers.count(node.function) > 1:
            if body is not None:
                body()
            return
        inner = outline(node.function, self.owner)
        self.through(inner, (*callers, node.function), body)
        if body is not None and not _yields(inner, self.owner, frozenset((*callers, node.function))):
            self.delegated(node, inner, callers, body)

    def is_news(self, function: FunctionType) -> bool:
        """Whether a method may show more than when it was last walked at this place: nothing new is alive."""
        walked, alive = self.stack[-1].walked if self.stack else self.walked, len(self.alive)
        if walked.get(function, -1) >= alive:
            return False
        walked[function] = alive
        self.begun.add(function)
        return True

    def delegated(
        self, node: Calls, inner: Iterable[Node], callers: tuple[FunctionType, ...], body: partial[None]
    ) -> None:
        """A method without `yield`, entered by `with`: what it calls may return the context manager."""
        makers = self.makers(inner, {*callers, node.function})
        if not makers:
            body()
        for maker in makers:
            self.through(outline(maker, self.owner), (*callers, node.function, maker), body)

    def makers(self, nodes: Iterable[Node], seen: set[FunctionType]) -> list[FunctionType]:
        """The methods with a `yield` that these nodes call, also through others."""
        found = []
        for called in _called_by(nodes):
            if called not in seen:
                seen.add(called)
                inner = outline(called, self.owner)
                found += [called] if _yields(inner, self.owner) else self.makers(inner, seen)
        return found

    def define(self, names: Names, stage: str | None, who: str) -> None:
        inside = [opened for opened in self.stack if stage is None or opened.place.path[-1:] == (stage,)]
        if not inside:
            self.outside |= names & {ANYTHING}
            return
        owner = inside[-1]
        owner.names |= names
        for name in sorted(names - {ANYTHING}):
            owner.place.born.setdefault(name, who)

    def touch(self, node: Touches) -> None:
        if self.stack:
            place = self.stack[-1].place
            touched = place.modifies if node.modifies else place.reads
            touched |= node.names - {ANYTHING}
        by = node.by
        if by is not None:
            for parameter in list(inspect.signature(by).parameters.values())[1:]:
                if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                    self.tree.called_by_name.setdefault((by, parameter.name), set()).update(self.alive)

    def unknown(self, node: Unknown) -> None:
        self.tree.unknown.setdefault(node.what)
        self.tree.any_stage = True
        self.tree.leaked |= self.alive - {ANYTHING}
        self.define(frozenset({ANYTHING}), None, "")

    @property
    def path(self) -> Path:
        return self.stack[-1].place.path if self.stack else ()

    @property
    def alive(self) -> set[str]:
        return self.outside.union(*(opened.names for opened in self.stack))


def escapes(
    nodes: Iterable[Node], owner: type, seen: frozenset[FunctionType] = frozenset()
) -> set[tuple[Names, str | None]]:
    """What nodes define in stages that they do not open themselves: names, and the stage (None: the innermost)."""
    found: set[tuple[Names, str | None]] = set()
    for node, inside in _flat(nodes, owner, seen):
        if isinstance(node, Defines) and (node.stage not in inside if node.stage else not inside):
            found.add((node.names, node.stage))
        elif isinstance(node, Unknown) and not inside:
            found.add((frozenset({ANYTHING}), None))
    return found


def _yields(nodes: Iterable[Node], owner: type, seen: frozenset[FunctionType] = frozenset()) -> bool:
    """Whether a `yield` stands somewhere in these nodes themselves."""
    return any(
        isinstance(node, Yields) or (isinstance(node, Calls | Opens | Loops) and _yields(node.body, owner, seen))
        for node in nodes
    )


def writes_inside(hook: Hook) -> set[tuple[Names, str | None]]:
    """What a hook defines through `fixtures`, beside what it declares; read from its source."""
    found = escapes(*_inside(hook))
    if not hook.owner or DOORS.intersection(hook.call.parameters):  # a hook of the extensible has `self.fixtures`
        return found
    return {(names, stage) for names, stage in found if ANYTHING not in names}  # through an Extensible that it keeps


def modified_inside(hook: Hook) -> Names:
    """What a hook modifies through `fixtures`, beside what it declares; read from its source."""
    touched = (node for node, _ in _flat(*_inside(hook)) if isinstance(node, Touches) and node.modifies)
    return frozenset().union(*(node.names for node in touched))


def _inside(hook: Hook) -> tuple[tuple[Node, ...], type, frozenset[FunctionType]]:
    """The outline of a hook, whose it is, and its function."""
    bound = hook.call.function
    holder = type(getattr(bound, "__self__", None))
    function = inspect.unwrap(getattr(bound, "__func__", bound))
    if not isinstance(function, FunctionType):
        return (), holder, frozenset()
    return outline(function, holder), holder, frozenset({function})


def _flat(
    nodes: Iterable[Node], owner: type, seen: Iterable[FunctionType]
) -> Iterator[tuple[Node, frozenset[str | None]]]:
    """All nodes, those of called methods too, each with the stages that are opened around it on the way."""
    walked: set[tuple[FunctionType, frozenset[str | None]]] = {(function, frozenset()) for function in seen}
    ahead: list[tuple[Iterable[Node], frozenset[str | None]]] = [(nodes, frozenset())]
    while ahead:
        here, inside = ahead.pop()
        for node in here:
            yield node, inside
            if isinstance(node, Calls | Loops):
                ahead.append((node.body, inside))
            if isinstance(node, Opens):
                ahead.append((node.body, inside | {node.stage}))
            if isinstance(node, Calls) and (node.function, inside) not in walked:
                walked.add((node.function, inside))
                ahead.append((outline(node.function, owner), inside))
