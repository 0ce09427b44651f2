"""The reader: turns the source of a method into its outline, once for each function."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Final, final
from weakref import WeakKeyDictionary

from train_manager.checker.method_source import (
    MethodSource,
    argument,
    is_harmless,
    is_none,
    names_in,
    targets_of,
)
from train_manager.checker.outline import (
    Calls,
    Defines,
    HandsOn,
    Item,
    Later,
    Loops,
    Opens,
    Outline,
    Touches,
    Unknown,
    WithoutSource,
)

_OUTLINES: Final[WeakKeyDictionary[FunctionType, Outline]] = WeakKeyDictionary()
"""Of the functions that were read so far. An outline has names only: it is right for each class, and keeps none."""

_DECIDING = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.FormattedValue, ast.Return)
"""Code in which the object itself stands without being handed to other code."""


def outline_of(function: FunctionType) -> Outline:
    """Return the outline of a method."""
    found = _OUTLINES.get(function)
    if found is None:
        found = _OUTLINES[function] = _read(function)
    return found


def _read(function: FunctionType) -> Outline:
    """Read the source of a method, if there is any."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):  # made by exec, or a lambda in the middle of an expression
        definition = None
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        what = f"{function.__qualname__} has no source to read"
        return (WithoutSource(frozenset(names_in(function.__code__)), what),)
    return _Reader(function, definition).block(definition.body)


@final
class _Reader(MethodSource):
    """Turns each node of the source into items."""

    def block(self, nodes: Iterable[ast.AST]) -> Outline:
        """Return the items of several nodes, one after the other."""
        items: list[Item] = []
        # A loop and no generator: a frame more for each level would halve the depth of source at which Python stops.
        for node in nodes:
            items += self.read(node)
        return tuple(items)

    def inside(self, node: ast.AST) -> Outline:
        """Return the items of the nodes inside a node."""
        return self.block(ast.iter_child_nodes(node))

    def read(self, node: ast.AST) -> Iterable[Item]:
        """Return the items of one node; a node of any other kind is read through to the nodes inside it."""
        match node:
            case ast.With() | ast.AsyncWith():
                return self.with_items(node.items, node.body)
            case ast.For() | ast.AsyncFor():
                body = (*self.targets(node, node.target), *self.block(node.body))
                return (*self.read(node.iter), Loops(body), *self.block(node.orelse))
            case ast.While():
                return (Loops(self.block([node.test, *node.body])), *self.block(node.orelse))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return (*self.block(node.decorator_list), *self.later(node, self.block(node.body)))
            case ast.Lambda():
                return self.later(node, self.block([node.body]))
            case ast.ClassDef():  # its methods belong to another object
                return ()
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self.assignment(node)
            case ast.Delete():
                return self.targets(node, *node.targets)
            case ast.Call():
                return self.call(node)
            case ast.Attribute() if self.is_self(node.value):
                return self.attribute(node)
            case ast.Attribute() if self.is_fixtures(node.value) and node.attr != "path":
                return [self.unknown(node, f"gives `fixtures.{node.attr}` another name", may_call=False)]
            case ast.Subscript() if self.is_fixtures(node.value):
                return [Touches(self.name_of(node.slice), modifies=False)]
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                return (Loops(self.inside(node)),)
            case ast.Name(ctx=ast.Load()) if self.is_self(node):
                return [HandsOn("", self.where(node, f"hands `{self.self_name}` on"))]
            case _ if isinstance(node, _DECIDING):
                return self.block(child for child in ast.iter_child_nodes(node) if not self.is_self(child))
            case ast.If() | ast.IfExp() | ast.Assert() if self.is_self(node.test):
                return self.block(child for child in ast.iter_child_nodes(node) if child is not node.test)
            case _:
                return self.inside(node)

    def where(self, node: ast.AST, does: str) -> str:
        """Return a description of code that cannot be followed."""
        return f"{self.function.__qualname__} ({self.line(node)}) {does}"

    def unknown(self, node: ast.AST, does: str, *, may_call: bool = True) -> Unknown:
        return Unknown(self.where(node, does), may_call)

    def later(self, node: ast.AST, body: Outline) -> Outline:
        """Return a function inside of the method; it counts only if it does something."""
        return (Later(body, self.where(node, "has a function that opens stages or defines fixtures")),) if body else ()

    # ---- statements ----------------------------------------------------------------------------------------------

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt]) -> Outline:
        """Return a ``with`` statement: its first context manager around the others, and these around the body."""
        if not items:
            return self.block(body)
        context = items[0].context_expr
        target = items[0].optional_vars
        inside = (*(self.targets(context, target) if target else ()), *self.with_items(items[1:], body))
        match context:
            case ast.Call() if self.is_staged(context.func):
                return (*self.arguments(context), *self.stages_opened(context, inside))
            case ast.Call(func=ast.Attribute(attr=name) as function) if self.is_own(function):
                # A context manager of the object's own: the body runs at its `yield`.
                return (*self.arguments(context), Calls(name, is_super=self.is_super(function.value), body=inside))
        return (*self.read(context), *inside)

    def stages_opened(self, call: ast.Call, inside: Outline) -> Iterator[Opens]:
        given = self.keys_of(argument(call, 1, "fixtures")) | self.keys_of(argument(call, 2, "defaults"))
        # A name that is `a if b else c` opens either; None stands for a name that is made at run time.
        for stage in self.constants(argument(call, 0, "name")) or (None,):
            yield Opens(stage, given, self.line(call), inside)

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Item]:
        targets = targets_of(node)
        if node.value is not None:
            if self.is_fixtures(node.value) and any(_target_name(target) != "fixtures" for target in targets):
                # Under an attribute, any method may use it; a local variable stays in this one.
                is_local = all(isinstance(target, ast.Name) for target in targets)
                yield self.unknown(node, "gives `fixtures` another name", may_call=not is_local)
            yield from self.read(node.value)
        if isinstance(node, ast.AugAssign):  # `self.x += 1` reads the old value first, perhaps of a property
            yield from self.read(node.target) if isinstance(node.target, ast.Attribute) else ()
        yield from self.targets(node, *targets)

    def targets(self, node: ast.AST, *targets: ast.expr) -> Iterator[Item]:
        """Yield the fixtures that an assignment to targets defines, in a statement, a loop or a ``with``."""
        for inner in (inner for target in targets for inner in ast.walk(target)):
            if isinstance(inner, ast.Subscript) and self.is_fixtures(inner.value):
                is_read = isinstance(inner.ctx, ast.Load)  # `fixtures["x"].value = 1`
                name = self.name_of(inner.slice)
                yield Touches(name, modifies=False) if is_read else Defines(name, None, self.line(node))
            elif isinstance(inner, ast.Subscript):
                yield from self.block([inner.value, inner.slice])

    # ---- expressions ---------------------------------------------------------------------------------------------

    def is_super(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"

    def is_own(self, node: ast.expr) -> bool:
        """Whether an expression is ``self.x`` or ``super().x``."""
        return isinstance(node, ast.Attribute) and (self.is_self(node.value) or self.is_super(node.value))

    def attribute(self, node: ast.Attribute) -> Iterator[Item]:
        """Yield the items of an attribute of the object that is read: a value, a property, or a bound method."""
        if node.attr == "staged" or (node.attr.startswith("__") and not node.attr.endswith("__")):
            yield self.unknown(node, f"reads `{self.self_name}.{node.attr}`")
        elif isinstance(node.ctx, ast.Load):
            yield HandsOn(node.attr, self.where(node, f"hands `{self.self_name}.{node.attr}` on"))

    # ---- calls ---------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Iterator[Item]:
        function = node.func
        if self.is_staged(function):
            yield self.unknown(node, "opens a stage outside of a `with` statement")
        elif isinstance(function, ast.Attribute) and self.is_fixtures(function.value):
            yield from self.arguments(node)
            yield from self.fixture_call(node, function.attr)
        elif isinstance(function, ast.Attribute) and self.is_own(function):
            yield from self.own_call(node, function)
        else:
            yield from self.read(function)
            yield from self.foreign_arguments(node)

    def arguments(self, node: ast.Call) -> Outline:
        return self.block([*node.args, *(keyword.value for keyword in node.keywords)])

    def own_call(self, node: ast.Call, function: ast.Attribute) -> Iterator[Item]:
        """Yield the items of ``self.method(...)`` or ``super().method(...)``."""
        match function.attr, node.args:
            case "call_by_name", [ast.Attribute(attr=name) as given] if self.is_own(given):
                yield Calls(name, by_name=True)
            case name, _ if name.startswith("__") and not name.endswith("__"):
                yield self.unknown(node, f"reads `{self.self_name}.{name}`")
            case name, given:
                what = f"hands `fixtures` to `{ast.unparse(function)}` under another name"
                hands = self.unknown(node, what) if any(map(self.is_fixtures, given)) else None
                yield from self.arguments(node)
                yield Calls(name, is_super=self.is_super(function.value), hands=hands)

    def fixture_call(self, node: ast.Call, does: str) -> Iterator[Item]:
        """Yield the items of a call of a method of ``fixtures``."""
        name = self.name_of(argument(node, 0, "name"))
        if does == "define":
            stage = argument(node, 2, "stage")
            stages = self.constants(stage)
            if stage is not None and not stages and not is_none(stage):
                yield self.unknown(node, "defines a fixture in a stage whose name is made at run time", may_call=False)
            for owner in stages or (None,):
                yield Defines(name, owner, self.line(node))
        elif does == "setdefault":
            yield Defines(name, None, self.line(node))
        elif does in ("update", "define_all"):
            yield Defines(self.keys_of(argument(node, 0, "values")), None, self.line(node))
        elif does in ("modify", "get"):
            yield Touches(name, modifies=does == "modify")
        elif does not in ("items", "keys", "values"):
            yield self.unknown(node, f"calls `fixtures.{does}`", may_call=False)

    def foreign_arguments(self, node: ast.Call) -> Iterator[Item]:
        """Yield the items of the arguments of unread code, which may call every function that it is given."""
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            if self.is_self(given) or self.is_fixtures(given):
                if not is_harmless(node.func):
                    yield self.handed(
                        given, self.where(node, f"hands `{ast.unparse(given)}` to `{ast.unparse(node.func)}`")
                    )
            else:
                yield from self.read(given)

    def handed(self, given: ast.expr, what: str) -> HandsOn | Unknown:
        """Return the item of the object, or of its fixtures, in other hands; through fixtures no method is called."""
        return HandsOn("", what) if self.is_self(given) else Unknown(what, may_call=False)


def _target_name(target: ast.expr) -> str:
    """Return the name of a variable or an attribute; of any other target the name that is harmless."""
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "fixtures")
