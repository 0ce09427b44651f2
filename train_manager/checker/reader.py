"""The reader: turns the source of a method into its outline, once for each function and class."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import final

from train_manager.checker.known import known_of
from train_manager.checker.method_source import (
    MethodSource,
    argument,
    is_harmless,
    is_name,
    is_none,
    may_matter,
    names_stages,
    targets_of,
    unread_accessors,
)
from train_manager.checker.outline import (
    Calls,
    Defines,
    Item,
    Loops,
    Opens,
    Outline,
    Refuses,
    Touches,
    Tries,
    Unknown,
    Where,
    Yields,
)

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def outline_of(function: FunctionType, owner: type) -> Outline:
    """Return the outline of a method, as it runs on an object of class ``owner``."""
    outlines = known_of(owner).outlines
    if function not in outlines:
        outlines[function] = _read(function, owner)
    return outlines[function]


def _read(function: FunctionType, owner: type) -> Outline:
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        definition = None
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return (Unknown(f"{function.__qualname__} has no source to read"),) if may_matter(function, owner) else ()
    outline = _Reader(function, owner, definition).block(definition.body)
    if any(map(names_stages, _wrappers(function, owner))):
        return (Unknown(f"{function.__qualname__} has a decorator that opens stages or writes fixtures"), *outline)
    return outline


def _wrappers(function: FunctionType, owner: type) -> Iterator[FunctionType]:
    """Yield the functions that decorators have put around a method with ``functools.wraps``."""
    for cls in owner.__mro__:
        outer = vars(cls).get(function.__name__)
        if callable(outer) and inspect.unwrap(outer) is function:
            while outer is not function:
                if isinstance(outer, FunctionType) and not (outer.__module__ or "").startswith("train_manager."):
                    yield outer
                outer = getattr(outer, "__wrapped__", function)


@final
@dataclass
class _Reader(MethodSource):
    """Turns each part of the source into items."""

    open_names: set[str] = field(init=False, default_factory=set)  # local functions that are being read

    def block(self, nodes: Iterable[ast.AST]) -> Outline:
        items: list[Item] = []
        ahead = [*nodes]
        for number, node in enumerate(ahead, 1):  # with a generator around each level, half as deep a source is read
            if isinstance(node, ast.If) and _leaves(node.body) and (decided := self.stage_condition(node.test)):
                return (*items, *self.branches(*decided, node.body, [*node.orelse, *ahead[number:]]))
            items += self.read(node)
        return tuple(items)

    def branches(self, stage: str, is_open: bool, body: Sequence[ast.AST], orelse: Sequence[ast.AST]) -> Outline:
        """Return the branches of a condition on the path of stages."""
        return tuple(
            Where(stage, is_so, (*self.block(branch), *([Refuses()] if _raises(branch) else [])))
            for is_so, branch in ((is_open, body), (not is_open, orelse))
            if branch
        )

    def read(self, node: ast.AST) -> Iterable[Item]:
        match node:
            case ast.With() | ast.AsyncWith():
                return self.with_items(node.items, node.body)
            case ast.For() | ast.AsyncFor():
                body = (*self.set_by(node, node.target), *self.block(node.body))
                return (*self.repeated(node.iter, body), *self.block(node.orelse))
            case ast.If() if decided := self.stage_condition(node.test):
                return self.branches(*decided, node.body, node.orelse)
            case ast.IfExp() if decided := self.stage_condition(node.test):
                return self.branches(*decided, [node.body], [node.orelse])
            case ast.Try() | ast.TryStar() if node.handlers:
                return (Tries(self.block(node.body)), *self.block([*node.handlers, *node.orelse, *node.finalbody]))
            case ast.While():
                return (Loops(self.block([node.test, *node.body])), *self.block(node.orelse))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return (
                    () if node.name in self.used else self.block(node.body)
                )  # used: it counts at each use of its name
            case ast.ClassDef():
                return ()
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self.assignment(node)
            case ast.Delete():
                return self.set_by(node, *node.targets)
            case ast.Call():
                return self.call(node)
            case ast.Attribute() if self.is_self(node.value):
                return self.attribute(node)
            case ast.Attribute() if self.is_fixtures(node.value) and node.attr != "path":
                return [self.unknown(node, f"gives `fixtures.{node.attr}` another name", calls=False)]
            case ast.Name(ctx=ast.Load()):
                return self.local_name(node.id)
            case ast.Attribute(value=ast.Subscript() as cell, attr="value") if self.is_cells(cell.value):
                return [Touches(self.name_of(cell.slice), modifies=isinstance(node.ctx, ast.Store))]
            case ast.Subscript() if self.is_fixtures(node.value):
                return [Touches(self.name_of(node.slice), modifies=False)]
            case ast.Yield():
                return (*self.block(ast.iter_child_nodes(node)), Yields())
            case ast.YieldFrom():
                call = node.value if isinstance(node.value, ast.Call) else None
                inner = self.own_method(call.func) if call else None
                if call is None or inner is None:
                    return (*self.read(node.value), Yields())
                return (*self.arguments(call), Calls(inner, (Yields(),)))
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node)
            case _:
                return self.block(ast.iter_child_nodes(node))

    def unknown(self, node: ast.AST, does: str, *, calls: bool = True) -> Unknown:
        return Unknown(f"{self.function.__qualname__} ({self.line(node)}) {does}", calls)

    # ---- statements ----------------------------------------------------------------------------------------------

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt]) -> Outline:
        if not items:
            return self.block(body)
        context = items[0].context_expr
        target = items[0].optional_vars
        inside = (*(self.set_by(context, target) if target else ()), *self.with_items(items[1:], body))
        if isinstance(context, ast.Call) and self.is_staged(context.func):
            return (*self.arguments(context), *self.stages_opened(context, inside))
        if isinstance(context, ast.Call) and (called := self.own_method(context.func)) is not None:
            return (*self.arguments(context), Calls(called, inside))
        if self.is_self(context):
            return (self.unknown(context, f"enters `{self.self_name}` as a context manager"), *inside)
        return (*self.read(context), Tries(inside))  # another context manager may swallow an error

    def stages_opened(self, call: ast.Call, inside: Outline) -> Iterator[Opens]:
        given = self.keys_of(argument(call, 1, "fixtures")) | self.keys_of(argument(call, 2, "defaults"))
        given |= self.keys_of(argument(call, 3, "seldom"))
        for stage in self.constants(argument(call, 0, "name")) or (None,):
            yield Opens(stage, given, self.line(call), inside)

    def repeated(self, iterated: ast.expr, body: Outline) -> Outline:
        """Return a body for each item; if methods of the same object make the items, it runs at their ``yield``."""
        makers = self.makers_of(iterated)
        if self.is_self(iterated) or len(makers) > 1:
            return (self.unknown(iterated, f"iterates over `{ast.unparse(iterated)}`"), Loops(body))
        return (Calls(makers[0], (Loops(body),)),) if makers else (*self.read(iterated), Loops(body))

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Item]:
        targets = targets_of(node)
        if node.value is not None:
            yield from self.value_given(node, node.value, targets)
        if isinstance(node, ast.AugAssign):  # reads the old value first
            yield from self.attribute(node.target) if isinstance(node.target, ast.Attribute) else ()
        yield from self.set_by(node, *targets)

    def value_given(self, node: ast.stmt, value: ast.expr, targets: list[ast.expr]) -> Iterator[Item]:
        is_local = all(isinstance(target, ast.Name) for target in targets)
        is_partial = isinstance(value, ast.Call) and ast.unparse(value.func).endswith("partial")
        held = value.args if isinstance(value, ast.Call) and is_partial else [value]
        kept = [found for part in held for found in self.bound_methods(part)]
        if self.holds_self(value) and hasattr(self.owner, "staged"):
            yield self.unknown(node, f"gives `{self.self_name}` another name")
        if self.is_fixtures(value) and any(_named(target) != "fixtures" for target in targets):
            yield self.unknown(node, "gives `fixtures` another name", calls=not is_local)  # kept, any method may use it
        if kept and (is_partial or not is_local):
            yield self.unknown(node, "keeps a bound method")
        # A lambda or a method under a local name counts at each use of the name.
        named = isinstance(value, ast.Lambda) or (kept and isinstance(value, ast.Attribute | ast.IfExp))
        if not (is_local and named):
            yield from self.read(value)

    # ---- expressions ---------------------------------------------------------------------------------------------

    def local_name(self, name: str) -> Iterator[Item]:
        """Yield what may run at the use of a local name: a nested function, a lambda, a method under another name."""
        if name not in self.open_names:  # else it uses itself
            self.open_names.add(name)
            for value in self.values.get(name, ()):
                yield from self.value_used(value)
            for function in self.nested.get(name, ()):
                yield from self.block(function.body)
            self.open_names.discard(name)

    def value_used(self, value: ast.expr) -> Iterator[Item]:
        if isinstance(value, ast.Lambda):
            yield from self.read(value.body)
        elif isinstance(value, ast.Attribute | ast.IfExp):
            yield from map(Calls, self.bound_methods(value))

    def set_by(self, node: ast.AST, *targets: ast.expr) -> Iterator[Item]:
        """Yield what an assignment to targets defines: of a statement, a loop or a ``with``."""
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Subscript) and self.is_fixtures(part.value):
                yield Defines(self.name_of(part.slice), None, self.line(node))
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Subscript):
                yield from self.read(part)
            elif isinstance(part, ast.Subscript):
                yield from self.block([part.value, part.slice])
            elif isinstance(part, ast.Attribute) and self.is_self(part.value):
                yield from self.accessor(part)

    def attribute(self, node: ast.Attribute) -> Iterator[Item]:
        """Yield what may run as an attribute of the object is read."""
        if not isinstance(inspect.getattr_static(self.owner, node.attr, None), property):
            yield from self.accessor(node)
        if node.attr == "staged" or (node.attr.startswith("__") and not node.attr.endswith("__")):
            yield self.unknown(node, f"reads `{self.self_name}.{node.attr}`")
        if (found := self.own_method(node)) is not None:  # a property, or a bound method that is handed on
            if self.function.__name__ == "__init__" and not self.is_property(node):
                yield self.unknown(node, "keeps a bound method")
            yield Calls(found)

    def accessor(self, node: ast.Attribute) -> Iterator[Unknown]:
        runs = unread_accessors(self.owner, node.attr)
        if runs:
            yield self.unknown(node, f"uses `{self.self_name}.{node.attr}`, {runs}")

    def comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp) -> Outline:
        inside = self.block([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        for clause in reversed(node.generators):
            inside = self.repeated(clause.iter, (*self.block(clause.ifs), *inside))
        return inside

    # ---- calls ---------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Iterator[Item]:
        function = node.func
        called = self.own_method(function)
        if self.is_self(function):
            yield self.unknown(node, f"calls `{self.self_name}`")
        elif self.is_staged(function):
            yield self.unknown(node, "opens a stage outside of a `with` statement")
        elif isinstance(function, ast.Attribute) and self.is_fixtures(function.value):
            yield from self.arguments(node)
            yield from self.fixture_call(node, function.attr)
        elif (chosen := self.chosen_method(function)) is not None:
            yield named_by(chosen)
            yield Calls(chosen)
        elif called is not None:
            yield from self.arguments(node)
            yield Calls(called)
            if "fixtures" not in called.__code__.co_varnames and any(map(self.is_fixtures, node.args)):
                yield self.unknown(node, f"hands `fixtures` to `{called.__qualname__}` under another name")
        else:
            yield from self.foreign_call(node)

    def arguments(self, node: ast.Call) -> Outline:
        return self.block([*node.args, *(keyword.value for keyword in node.keywords)])

    def fixture_call(self, node: ast.Call, does: str) -> Iterator[Item]:
        name = self.name_of(argument(node, 0, "name"))
        if does == "define":
            stage = argument(node, 2, "stage")
            stages = self.constants(stage)
            if stage is not None and not stages and not is_none(stage):
                yield self.unknown(node, "defines a fixture in a stage whose name is made at run time", calls=False)
            for owner in stages or (None,):
                yield Defines(name, owner, self.line(node))
        elif does == "setdefault":
            yield Defines(name, None, self.line(node))
        elif does in ("update", "define_all"):
            yield Defines(self.keys_of(argument(node, 0, "values")), None, self.line(node))
        elif does in ("modify", "get"):
            yield Touches(name, modifies=does == "modify")
        elif does not in ("items", "keys", "values"):
            yield self.unknown(node, f"calls `fixtures.{does}`", calls=False)

    def foreign_call(self, node: ast.Call) -> Iterator[Item]:
        """Yield what a call of code that is not read may do: it may call what it is given."""
        yield from self.read(node.func)
        yield from self.arguments(node)
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            can_open = self.holds_self(given) and hasattr(self.owner, "staged")
            if (can_open or self.is_fixtures(given)) and not is_harmless(node.func):
                yield self.unknown(node, f"hands `{ast.unparse(given)}` to `{ast.unparse(node.func)}`", calls=can_open)
        yield from self.called_by_name(node)
        if is_name(node.func, "next") and any(map(self.makers_of, node.args)):
            yield self.unknown(node, "advances a generator with `next`")

    def called_by_name(self, node: ast.Call) -> Iterator[Touches]:
        """Yield the fixtures that the parameters of ``x`` name, for ``self.call_by_name(self.x)``."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "call_by_name" and self.is_self(function.value):
            for called in map(self.own_method, node.args):
                if called is not None:
                    yield named_by(called)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch ends its block, so that what stands after it belongs to the other branch."""
    return isinstance(body[-1], _LEAVING)


def _named(target: ast.expr) -> str:
    """Return the name of a variable or an attribute; of any other target the name that is harmless."""
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "fixtures")


def _raises(branch: Sequence[ast.AST]) -> bool:
    """Whether a branch raises at its end, and has no other way out."""
    parts = (part for statement in branch[:-1] for part in ast.walk(statement))
    return isinstance(branch[-1], ast.Raise) and not any(isinstance(part, _LEAVING) for part in parts)


def named_by(called: FunctionType) -> Touches:
    """Return what a method reads that is called by the names of its parameters."""
    return Touches(frozenset([*inspect.signature(called).parameters][1:]), modifies=False, by=called)
