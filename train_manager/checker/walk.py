"""The walk: follows the outlines of a class through its method calls, and notes in a tree which stages open.

A walk begins at each method that no other method calls, or at the one method that a run is entered by. Hooks and
providers add what they define on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Final, final

from train_manager.checker.hook_writes import find_definitions
from train_manager.checker.method_source import ANYTHING
from train_manager.checker.methods import Methods
from train_manager.checker.outline import (
    Calls,
    Defines,
    HandsOn,
    Later,
    Loops,
    Names,
    Opens,
    Outline,
    Touches,
    Unknown,
    Where,
    Yields,
)
from train_manager.checker.tree import Path, StageNode, StageTree
from train_manager.core.declarations import declarations_of
from train_manager.core.hooks import KINDS, Hook
from train_manager.core.plan import Plan

MOST_STEPS: Final = 50_000  # a large class takes some hundreds; methods that all call each other would take years


def stage_tree(methods: Methods, plan_of: Callable[[str], Plan], entry: str | None = None) -> StageTree:
    """Return the tree of the stages that the methods of a class open.

    Args:
        methods: of a subclass of Extensible.
        plan_of: finds what runs at a stage, in order.
        entry: the method to begin at; None begins at every method that no other method calls.
    """
    walk = _Walk(methods, plan_of)
    own = methods.all()
    begins = _roots(own, methods) if entry is None else [own[entry]] if entry in own else []
    walk.begin_all(begins)
    walk.unread()
    if walk.entered_by_unknown:  # unknown code may call any method, also one that the entry does not lead to
        walk.begin_all(_roots(own, methods))
    walk.finish()
    return walk.tree


def _roots(own: dict[str, FunctionType], methods: Methods) -> list[FunctionType]:
    """Return the methods to begin at: first those that no other method calls, then the others."""
    # The others are walked from their callers; only a circle of methods that call each other is left for them.
    called = {inner for function in own.values() for inner in methods.called_in(function) if inner is not function}
    loops = [function for name, function in own.items() if not _is_hook_or_provider(name, function)]
    return sorted(loops, key=called.__contains__)


def _is_hook_or_provider(name: str, function: FunctionType) -> bool:
    """Return whether a method of the loop runs at stages, by the plan, and is not called by other methods."""
    declared = declarations_of(function)
    return (name.partition("_")[0] in KINDS and not declared.not_a_hook) or declared.fixture_of is not None


@dataclass
class _OpenStage:
    """A stage that the walk is inside of; the first one on the stack stands for no stage at all."""

    node: StageNode
    names: set[str] = field(default_factory=set)  # the fixtures that it owns so far
    walked: dict[FunctionType, int] = field(default_factory=dict)  # methods, with the number of names alive there
    has_name: bool = True  # written in the source


@dataclass(frozen=True)
class _Frame:
    """The calls that lead to an outline."""

    callers: tuple[FunctionType, ...]  # the methods, from the one that the walk began at
    at_yield: Callable[[], None] = lambda: None  # walks the body of the `with` over a method of the table


@final
@dataclass
class _Walk:
    """One walk, with the stack of stages that are open."""

    methods: Methods
    plan_of: Callable[[str], Plan]
    tree: StageTree = field(default_factory=StageTree)  # grows
    stack: list[_OpenStage] = field(default_factory=list)  # the open stages, the innermost last
    anywhere: set[str] = field(default_factory=set)  # names alive where unknown code runs, which may call any method
    entered_by_unknown: set[int] = field(default_factory=set)  # numbers of the walks that came to such code
    walks_to: dict[Path, set[int]] = field(default_factory=dict)  # numbers of the walks that came to each stage
    number: int = 0  # of the present walk: each call of `begin` is one
    # The names that each hook defines, by the id of the hook, whose source is read once.
    defined: dict[int, tuple[tuple[Names, str | None], ...]] = field(default_factory=dict)
    steps: int = 0  # items so far, of at most MOST_STEPS
    begun: set[FunctionType] = field(default_factory=set)  # methods that were walked, or called in a walk
    outlines: list[Outline] = field(default_factory=list)  # that walks began with

    def begin_all(self, functions: Iterable[FunctionType]) -> None:
        """Walk the methods that no other one calls."""
        for function in functions:
            outline = self.methods.outline(function)
            # Several methods of a table may do the same, and have one outline.
            if function not in self.begun and not any(outline is other for other in self.outlines):
                self.outlines.append(outline)
                self.begin(function)
                self.begun |= {function, *self.methods.reachable(function)}

    def begin(self, function: FunctionType) -> None:
        """Walk a method that is called from outside."""
        self.number += 1
        self.stack = [_OpenStage(StageNode(()), self.held_open(function), walked={function: 0})]
        try:
            self.through(self.methods.outline(function), _Frame((function,)))
        except RecursionError:  # calls that go hundreds of methods deep
            self.give_up()

    def held_open(self, function: FunctionType) -> set[str]:
        """Return the names that may be alive around a method, though no stage of the walk is open.

        A program may call a method that it adds to a loop inside of ``with tm.run():``.
        """
        if not self.methods.is_added(function):
            return set()
        return set().union(*(node.alive["post"] for path, node in self.tree.nodes.items() if len(path) == 1))

    def unread(self) -> None:
        """Note the attributes that run unread code when other code uses them, with no stage open."""
        self.number += 1
        self.stack = [_OpenStage(StageNode(()))]
        for what in self.methods.unread:
            self.unknown(Unknown(what))

    def finish(self) -> None:
        """Add the names that may be alive anywhere to all nodes; they are known only after the last walk."""
        # Unknown code may define any fixture, and then call a method that another walk began with.
        for path, node in self.tree.nodes.items():
            is_called = any(self.entered_by_unknown - {walk} for walk in self.walks_to[path])
            for alive in node.alive.values():
                alive |= self.anywhere | ({ANYTHING} if is_called else set())

    def give_up(self) -> None:
        """Note that the class was not read to the end: any stage may open, and any name may be alive."""
        self.tree.unknown.setdefault(
            f"the calls of {self.methods.owner.__name__} take more paths than the check follows"
        )
        self.tree.any_stage = True
        self.anywhere.add(ANYTHING)

    def through(self, outline: Outline, frame: _Frame) -> None:
        """Walk the items of an outline."""
        for item in outline:
            self.steps += 1
            if self.steps > MOST_STEPS:
                self.give_up()
                return
            unknown = self.methods.unknown_in(item, frame.callers[-1])
            if unknown is not None:
                self.unknown(unknown)
            match item:
                case Opens():
                    self.stage(item, frame)
                case Calls():
                    self.call(item, frame)
                case Defines():
                    self.define(item.names, item.stage, item.line)
                case Touches():
                    touched = self.stack[-1].node.modifies if item.modifies else self.stack[-1].node.reads
                    touched |= item.names - {ANYTHING}
                case Loops():
                    self.loop(item, frame)
                case Where():
                    self.where(item, frame)
                case Yields():
                    frame.at_yield()
                case HandsOn():  # a property is read, or a method may be called here
                    function = self.methods.named(item.name)
                    if function is not None:
                        self.enter(function, frame)
                case Later() if unknown is not None:  # its stages are shown where it stands
                    self.through(item.body, frame)

    # ---- stages and their hooks ----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self.stack[-1].node.path

    @property
    def alive(self) -> set[str]:
        return set().union(*(opened.names for opened in self.stack))

    def stage(self, item: Opens, frame: _Frame) -> None:
        """Walk a stage: its fixtures, its pre hooks, its body and its post hooks, in this order."""
        if item.stage is None:
            self.unnamed_stage(item, frame)
            return
        path = (*self.path, item.stage)
        node = self.tree.nodes.setdefault(path, StageNode(path, frame.callers))
        self.walks_to.setdefault(path, set()).add(self.number)
        if self.path.count(item.stage) > 1:  # a recursion: one round of it shows all names that can be alive
            return
        plan = self.plan_of(item.stage)
        with self.push(_OpenStage(node)):
            self.define(item.given, None, item.line)
            for provider in plan.providers.values():
                self.define(frozenset({provider.name}), None, provider.label)
            node.alive["around"] |= self.alive
            self.run(plan.pre)
            node.alive["pre"] |= self.alive
            self.through(item.body, frame)
            self.run(plan.post)
            node.alive["post"] |= self.alive

    def unnamed_stage(self, item: Opens, frame: _Frame) -> None:
        self.tree.unknown.setdefault(f"a stage whose name is made at run time ({item.line})")
        self.tree.any_stage = True
        # Its hooks, and so the fixtures that they define, are unknown: any name may be alive in it.
        with self.push(_OpenStage(StageNode(self.path), {ANYTHING}, has_name=False)):
            self.through(item.body, frame)

    @contextmanager
    def push(self, stage: _OpenStage) -> Iterator[None]:
        self.stack.append(stage)
        try:
            yield
        finally:
            self.stack.pop()

    def where(self, item: Where, frame: _Frame) -> None:
        """Walk a body if it fits the open stages; inside of a stage of unknown name, each body may fit."""
        if (item.stage in self.path) is item.is_open or not all(opened.has_name for opened in self.stack):
            self.through(item.body, frame)

    def run(self, hooks: Iterable[Hook]) -> None:
        """Make the fixtures alive that hooks define."""
        for hook in hooks:
            if id(hook) not in self.defined:
                self.defined[id(hook)] = _all_definitions(hook, self.methods)
            for names, stage in self.defined[id(hook)]:
                self.define(names, stage, hook.label)

    def define(self, names: Names, stage: str | None, definer: str) -> None:
        """Make names alive in the innermost open stage of a name; None stands for the innermost stage of all."""
        inside = [opened for opened in self.stack[1:] if stage is None or opened.node.path[-1:] == (stage,)]
        # No such stage is open on this walk. Which stage owns the names is unknown, so that only ANYTHING counts.
        if not inside:
            self.stack[0].names |= names & {ANYTHING}
            return
        inside[-1].names |= names
        for name in sorted(names - {ANYTHING}):
            inside[-1].node.definers.setdefault(name, definer)

    def unknown(self, item: Unknown) -> None:
        """Note unknown code: it may open any stage, define any name here, and perhaps call any method."""
        self.tree.unknown.setdefault(item.what)
        self.tree.any_stage = True
        if item.may_call:
            self.entered_by_unknown.add(self.number)
        self.anywhere |= self.alive - {ANYTHING}
        self.define(frozenset({ANYTHING}), None, "")

    # ---- loops and calls -----------------------------------------------------------------------------------------

    def loop(self, item: Loops, frame: _Frame) -> None:
        """Walk a body, and once more if the first round has left names alive, which the next round may read."""
        before = len(self.alive)
        self.through(item.body, frame)
        if len(self.alive) > before:
            self.through(item.body, frame)

    def call(self, item: Calls, frame: _Frame) -> None:
        """Walk a method that is called, and the body of a ``with`` around it."""
        function = self.methods.called(item, frame.callers[-1])
        if function is None:  # not a method: a value that the object holds
            self.through(item.body or (), frame)
            return
        if item.by_name:
            self.note_parameters(function)
        if item.body is not None and self.methods.is_of_the_loop(function):
            body = partial(self.through, item.body, frame)
            self.through(self.methods.outline(function), _Frame((*frame.callers, function), body))
            return
        if (item.body is not None or self.methods.is_generator(function)) and self.methods.matters(function):
            does = "is entered by `with`" if item.body is not None else "is a generator"
            self.unknown(Unknown(f"{function.__qualname__} {does}, and opens stages or defines fixtures"))
        self.enter(function, frame)
        self.through(item.body or (), frame)

    def enter(self, function: FunctionType, frame: _Frame) -> None:
        """Walk a method, unless nothing new would be found: a recursion is entered once."""
        if self.is_news(function) and frame.callers.count(function) <= 1:
            self.through(self.methods.outline(function), _Frame((*frame.callers, function)))

    def is_news(self, function: FunctionType) -> bool:
        """Return whether more names are alive than at the last walk through a method in this stage."""
        # Else the walk would find nothing new. Without this test, methods that call each other take too many paths.
        walked, alive = self.stack[-1].walked, len(self.alive)
        if walked.get(function, -1) >= alive:
            return False
        walked[function] = alive
        return True

    def note_parameters(self, function: FunctionType) -> None:
        """Note the fixtures that the parameters of a method name, which is called with them."""
        parameters = self.methods.parameters(function)
        self.stack[-1].node.reads |= {parameter.name for parameter in parameters}
        for parameter in parameters:
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                self.tree.called_by_name.setdefault((function, parameter.name), set()).update(self.alive)


def _all_definitions(hook: Hook, loop: Methods) -> tuple[tuple[Names, str | None], ...]:
    """Return the names that a hook defines, each set with its stage; None stands for the innermost one."""
    declared = [(frozenset({write.name}), write.stage) for write in hook.writes if write.defines]
    return (*declared, *find_definitions(hook, loop))
