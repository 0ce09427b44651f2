"""The walk: follows the outlines of a class through its method calls, and notes in a tree which stages open.

A walk begins at each method that no other method calls, or at the one method that a run is entered by. Hooks and
providers add what they define on the way.
"""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import final

from train_manager.checker.hook_writes import doors_of, find_definitions
from train_manager.checker.known import refresh
from train_manager.checker.method_source import ANYTHING, NEVER_LOOKED_INTO, Names, method, unread_accessors
from train_manager.checker.outline import (
    Calls,
    Defines,
    Loops,
    Opens,
    Outline,
    Refuses,
    Touches,
    Tries,
    Unknown,
    Where,
    Yields,
    find_called,
    has_yield,
)
from train_manager.checker.reader import outline_of
from train_manager.checker.tree import Path, StageNode, StageTree
from train_manager.core.declarations import declarations_of
from train_manager.core.extensible import Extensible
from train_manager.core.hooks import KINDS, Hook
from train_manager.core.plan import Plan
from train_manager.core.registry import Registry

MOST_STEPS = 50_000  # a large class takes some hundreds; methods that all call each other would take years
STANDARD_LIBRARY = sysconfig.get_path("stdlib")  # the folder of its files


def tree_of(owner: type[Extensible], registry: Registry, entry: str | None = None) -> StageTree:
    """Return ``stage_tree`` with the hooks of a registry, which is kept until the class or the hooks change."""
    doors = doors_of(owner)
    hooks = tuple((hook.kind, hook.stage, hook.label, _all_definitions(hook, doors)) for hook in registry.hooks)
    lazy = tuple((provider.stage, provider.name, provider.label) for provider in registry.providers)
    # Most hooks define no fixture (`hook[-1]` is empty), and leave the tree as it is.
    key = entry, tuple(hook for hook in hooks if hook[-1]), lazy
    known = refresh(owner)
    if key not in known.trees:
        known.keep(key, stage_tree(owner, registry.plans.__getitem__, entry))
    return known.trees[key]


def stage_tree(owner: type[Extensible], plan_of: Callable[[str], Plan], entry: str | None = None) -> StageTree:
    """Return the tree of the stages that the methods of a class open.

    Args:
        owner: a subclass of Extensible.
        plan_of: finds what runs at a stage, in order.
        entry: the method to begin at; None begins at every method that no other method calls.
    """
    refresh(owner)  # outlines of methods that were replaced since are read anew
    walk = _Walk(owner, plan_of)
    methods = _own_methods(owner)
    walk.begin_all([methods[entry]] if entry is not None else _roots(methods, owner))
    if walk.entered_by_unknown:  # unknown code may call any method, also one that the entry does not lead to
        walk.begin_all(_roots(methods, owner))
    walk.through(tuple(_unread(owner)), _Frame(()))  # attributes that run unread code when other code uses them
    walk.finish()
    return walk.tree


def _all_definitions(hook: Hook, doors: frozenset[str]) -> tuple[tuple[Names, str | None], ...]:
    """Return the names that a hook defines, each set with its stage; None stands for the innermost one."""
    declared = [(frozenset({write.name}), write.stage) for write in hook.writes if write.defines]
    return (*declared, *find_definitions(hook, doors))


def find_reachable(function: FunctionType, owner: type) -> set[FunctionType]:
    """Return the methods that a method calls, also through others; conditions on open stages are ignored."""
    found: set[FunctionType] = set()
    ahead = [function]
    while ahead:
        called = {*find_called(outline_of(ahead.pop(), owner))} - found
        found |= called
        ahead += called
    return found


def _own_methods(owner: type) -> dict[str, FunctionType]:
    """Return the methods of a class by name, without methods of the core, of torch and of the standard library."""
    found: dict[str, FunctionType] = {}
    for name in dict.fromkeys(name for cls in reversed(owner.__mro__) for name in vars(cls)):
        function = method(owner, name)
        if function is not None and _may_open(function):
            found[name] = function
    return found


def _unread(owner: type) -> Iterator[Unknown]:
    """Yield an item for each attribute that runs unread code when code from outside uses it."""
    for name in dict.fromkeys(name for cls in owner.__mro__ for name in vars(cls)):
        runs = unread_accessors(owner, name)
        if runs:
            yield Unknown(f"{owner.__qualname__}.{name} is {runs}")


def _may_open(function: FunctionType) -> bool:
    """Return whether a method may open stages: not one of the core, of torch or of the standard library."""
    module = function.__module__ or ""  # a class made by exec has none
    file = function.__code__.co_filename
    is_standard = file.startswith("<frozen ") or (file.startswith(STANDARD_LIBRARY) and "site-packages" not in file)
    return not is_standard and not module.startswith((NEVER_LOOKED_INTO, "torch."))


def _roots(methods: dict[str, FunctionType], owner: type) -> list[FunctionType]:
    """Return the methods to begin at: first those that no other method calls, then the others."""
    # The others are walked from their callers; only a circle of methods that call each other is left for them.
    called = {
        inner
        for function in methods.values()
        for inner in find_called(outline_of(function, owner))
        if inner is not function
    }
    loops = [function for name, function in methods.items() if not _is_hook_or_provider(name, function)]
    return sorted(loops, key=called.__contains__)


def _is_hook_or_provider(name: str, function: FunctionType) -> bool:
    """Return whether a method of the loop runs at stages, by the plan, and is not called by other methods."""
    declared = declarations_of(function)
    return (name.partition("_")[0] in KINDS and not declared.not_a_hook) or declared.fixture_of is not None


class _Refused(Exception):
    """The method that is walked raises an error at this point, because a stage is open, or is not open."""


@dataclass
class _OpenStage:
    """A stage that the walk is inside of; the first one on the stack stands for no stage at all."""

    node: StageNode
    names: set[str] = field(default_factory=set)  # the fixtures that it owns so far
    walked: dict[FunctionType, int] = field(default_factory=dict)  # methods, with the number of names alive there


@dataclass(frozen=True)
class _Frame:
    """The calls that lead to an outline."""

    callers: tuple[FunctionType, ...]  # the methods, from the one that the walk began at
    at_yield: Callable[[], None] = lambda: None  # walks the body of the `with` or `for` over a generator method


@final
@dataclass
class _Walk:
    """One walk, with the stack of stages that are open."""

    owner: type[Extensible]
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
    passes_over: bool = False  # a branch that needs an open stage was not walked, since no stage is open

    def begin_all(self, functions: Iterable[FunctionType]) -> None:
        """Walk the methods that no other one calls; then, inside outermost stages, the methods that need one open."""
        passed_over: list[FunctionType] = []
        for function in functions:
            if function not in self.begun:
                passed_over += [function] if self.begin(function) else []
                self.begun |= {function, *find_reachable(function, self.owner)}
        held_open = [node for path, node in self.tree.nodes.items() if len(path) == 1]
        for function in passed_over:
            for node in held_open:  # as code from outside does with `with tm.run():`
                self.begin(function, _OpenStage(node, {*node.definers}))

    def begin(self, function: FunctionType, *opened: _OpenStage) -> bool:
        """Walk a method that is called from outside; return whether it has a branch that needs an open stage."""
        self.number += 1
        self.stack = [_OpenStage(StageNode(()), walked={function: 0}), *opened]
        self.passes_over = False
        try:
            self.through(outline_of(function, self.owner), _Frame((function,)))
        except RecursionError:  # calls that go hundreds of methods deep
            self.give_up()
        except _Refused:  # the method raises an error if it is called with these stages open
            pass
        return self.passes_over

    def finish(self) -> None:
        """Add the names that may be alive anywhere to all nodes; they are known only after the last walk."""
        # Unknown code may define any fixture, and then call a method that another walk began with.
        for path, node in self.tree.nodes.items():
            is_called = any(self.entered_by_unknown - {walk} for walk in self.walks_to[path])
            for alive in node.alive.values():
                alive |= self.anywhere | ({ANYTHING} if is_called else set())

    def give_up(self) -> None:
        """Note that the class was not read to the end: any stage may open, and any name may be alive."""
        self.tree.unknown.setdefault(f"the calls of {self.owner.__name__} take more paths than the check follows")
        self.tree.any_stage = True
        self.anywhere.add(ANYTHING)

    def through(self, outline: Outline, frame: _Frame) -> None:
        """Walk the items of an outline."""
        for item in outline:
            self.steps += 1
            if self.steps > MOST_STEPS:
                self.give_up()
                return
            match item:
                case Opens():
                    self.stage(item, frame)
                case Loops():
                    self.loop(item, frame)
                case Calls():
                    self.call(item, frame)
                case Where():
                    self.where(item, frame)
                case Tries():
                    with suppress(_Refused):
                        self.through(item.body, frame)
                case Refuses():  # without an open stage, it is as if the branch that needs one was passed over
                    self.passes_over |= not self.path
                    raise _Refused
                case Yields():
                    frame.at_yield()
                case Defines():
                    self.define(item.names, item.stage, item.line)
                case Touches():
                    self.touch(item)
                case Unknown():
                    self.unknown(item)

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
        with self.push(_OpenStage(StageNode(self.path), {ANYTHING})):
            self.through(item.body, frame)

    @contextmanager
    def push(self, stage: _OpenStage) -> Iterator[None]:
        self.stack.append(stage)
        try:
            yield
        finally:
            self.stack.pop()

    def where(self, item: Where, frame: _Frame) -> None:
        """Walk a branch if it fits the open stages; inside of a stage of unknown name, each branch may fit."""
        if ANYTHING in self.alive:
            with suppress(_Refused):
                self.through(item.body, frame)
        elif (item.stage in self.path) is item.is_open:
            self.through(item.body, frame)
        elif not self.path and item.body:
            self.passes_over = True

    def run(self, hooks: Iterable[Hook]) -> None:
        """Make the fixtures alive that hooks define."""
        for hook in hooks:
            if id(hook) not in self.defined:
                self.defined[id(hook)] = _all_definitions(hook, doors_of(self.owner))
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

    def touch(self, item: Touches) -> None:
        """Note the fixtures that the code of the present stage reads or modifies, and calls by fixture names."""
        node = self.stack[-1].node
        touched = node.modifies if item.modifies else node.reads
        touched |= item.names - {ANYTHING}
        if item.by is not None:
            for parameter in list(inspect.signature(item.by).parameters.values())[1:]:
                if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                    self.tree.called_by_name.setdefault((item.by, parameter.name), set()).update(self.alive)

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
        """Walk a method that is called; a body around it is walked at its ``yield``."""
        if not item.body and not self.is_news(item.function):
            return
        body = partial(self.through, item.body, frame)
        if frame.callers.count(item.function) > 1:  # a recursion is entered once
            body()
            return
        inner = outline_of(item.function, self.owner)
        callers = (*frame.callers, item.function)
        self.through(inner, _Frame(callers, body))
        if item.body and not has_yield(inner):
            self.delegates(inner, _Frame(callers, body))

    def is_news(self, function: FunctionType) -> bool:
        """Return whether more names are alive than at the last walk through a method in this stage."""
        # Else the walk would find nothing new. Without this test, methods that call each other take too many paths.
        walked, alive = self.stack[-1].walked, len(self.alive)
        if walked.get(function, -1) >= alive:
            return False
        walked[function] = alive
        return True

    def delegates(self, outline: Outline, frame: _Frame) -> None:
        """Walk the methods with a ``yield`` whose generator a method without one may return."""
        makers = self.makers(outline, {*frame.callers})
        for maker in makers:
            self.through(outline_of(maker, self.owner), _Frame((*frame.callers, maker), frame.at_yield))
        if not makers:
            frame.at_yield()

    def makers(self, outline: Outline, seen: set[FunctionType]) -> list[FunctionType]:
        """Return the methods with a ``yield`` that an outline calls, also through other methods."""
        found = []
        for called in find_called(outline):
            if called not in seen:
                seen.add(called)
                inner = outline_of(called, self.owner)
                found += [called] if has_yield(inner) else self.makers(inner, seen)
        return found
