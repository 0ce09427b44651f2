"""The reader: turns the source of a method into its outline, once for each function and class."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import final

from train_manager.checker.known import get_known
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

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)  # statements after which a block does not continue


def outline_of(function: FunctionType, owner: type) -> Outline:
    """Return the outline of a method, as it runs on an object of class ``owner``."""
    outlines = get_known(owner).outlines
    if function not in outlines:
        outlines[function] = _read(function, owner)
    return outlines[function]


def _read(function: FunctionType, owner: type) -> Outline:
    """Read the source of a method, if there is any."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):  # made by exec, or a lambda in the middle of an expression
        definition = None
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return (Unknown(f"{function.__qualname__} has no source to read"),) if may_matter(function, owner) else ()
    outline = _Reader(function, owner, definition).block(definition.body)
    # `inspect.unwrap` has skipped the decorators of the method, whose code may open stages too.
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
    """Turns each node of the source into items."""

    open_names: set[str] = field(init=False, default_factory=set)  # local names whose value is being read at a use

    def block(self, nodes: Iterable[ast.AST]) -> Outline:
        """Return the items of several nodes, one after the other."""
        items: list[Item] = []
        ahead = [*nodes]
        # A loop and no generator: a frame more for each level would halve the depth of source at which Python stops.
        for number, node in enumerate(ahead, 1):
            # `if "eval" in path: return`: the rest of the block belongs to the other branch.
            if isinstance(node, ast.If) and _leaves(node.body) and (decided := self.stage_condition(node.test)):
                return (*items, *self.branches(*decided, node.body, [*node.orelse, *ahead[number:]]))
            items += self.read(node)
        return tuple(items)

    def branches(self, stage: str, is_open: bool, body: Sequence[ast.AST], orelse: Sequence[ast.AST]) -> Outline:
        """Return the branches of a condition on the path of stages, each with the state of the stage that it wants."""
        return tuple(
            Where(stage, is_so, (*self.block(branch), *([Refuses()] if _raises(branch) else [])))
            for is_so, branch in ((is_open, body), (not is_open, orelse))
            if branch
        )

    def read(self, node: ast.AST) -> Iterable[Item]:
        """Return the items of one node; a node of any other kind is read through to the nodes inside it."""
        match node:
            case ast.With() | ast.AsyncWith():
                return self.with_items(node.items, node.body)
            case ast.For() | ast.AsyncFor():
                body = (*self.targets(node, node.target), *self.block(node.body))
                return (*self.loop(node.iter, body), *self.block(node.orelse))
            case ast.If() if decided := self.stage_condition(node.test):
                return self.branches(*decided, node.body, node.orelse)
            case ast.IfExp() if decided := self.stage_condition(node.test):
                return self.branches(*decided, [node.body], [node.orelse])
            case ast.Try() | ast.TryStar() if node.handlers:
                return (Tries(self.block(node.body)), *self.block([*node.handlers, *node.orelse, *node.finalbody]))
            case ast.While():
                return (Loops(self.block([node.test, *node.body])), *self.block(node.orelse))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # A nested function counts at each use of its name (`local_name`); one without a use, where it stands.
                return () if node.name in self.used else self.block(node.body)
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
            case ast.Name(ctx=ast.Load()):
                return self.local_name(node.id)
            case ast.Attribute(value=ast.Subscript() as cell, attr="value") if self.is_cells(cell.value):
                return [Touches(self.name_of(cell.slice), modifies=isinstance(node.ctx, ast.Store))]
            case ast.Subscript() if self.is_fixtures(node.value):
                return [Touches(self.name_of(node.slice), modifies=False)]
            case ast.Yield():
                return (*self.block(ast.iter_child_nodes(node)), Yields())
            case ast.YieldFrom():
                # `yield from self.method()`: the body around this method runs at the yields of the inner one.
                call = node.value if isinstance(node.value, ast.Call) else None
                inner = self.own_method(call.func) if call else None
                if call is None or inner is None:
                    return (*self.read(node.value), Yields())
                return (*self.arguments(call), Calls(inner, (Yields(),)))
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                return self.comprehension(node)
            case _:
                return self.block(ast.iter_child_nodes(node))

    def unknown(self, node: ast.AST, does: str, *, may_call: bool = True) -> Unknown:
        """Return the item for code that cannot be followed."""
        return Unknown(f"{self.function.__qualname__} ({self.line(node)}) {does}", may_call)

    # ---- statements ----------------------------------------------------------------------------------------------

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt]) -> Outline:
        """Return a ``with`` statement: its first context manager around the others, and these around the body."""
        if not items:
            return self.block(body)
        context = items[0].context_expr
        target = items[0].optional_vars
        inside = (*(self.targets(context, target) if target else ()), *self.with_items(items[1:], body))
        if isinstance(context, ast.Call) and self.is_staged(context.func):
            return (*self.arguments(context), *self.stages_opened(context, inside))
        # A context manager of the object's own: the body runs at its `yield`.
        if isinstance(context, ast.Call) and (called := self.own_method(context.func)) is not None:
            return (*self.arguments(context), Calls(called, inside))
        if self.is_self(context):
            return (self.unknown(context, f"enters `{self.self_name}` as a context manager"), *inside)
        return (*self.read(context), Tries(inside))  # another context manager may swallow an error

    def stages_opened(self, call: ast.Call, inside: Outline) -> Iterator[Opens]:
        given = self.keys_of(argument(call, 1, "fixtures")) | self.keys_of(argument(call, 2, "defaults"))
        # A name that is `a if b else c` opens either; None stands for a name that is made at run time.
        for stage in self.constants(argument(call, 0, "name")) or (None,):
            yield Opens(stage, given, self.line(call), inside)

    def loop(self, iterated: ast.expr, body: Outline) -> Outline:
        """Return the body of a loop; over a generator method of the same object, it runs at the ``yield`` of that."""
        makers = self.makers_of(iterated)
        if self.is_self(iterated) or len(makers) > 1:
            return (self.unknown(iterated, f"iterates over `{ast.unparse(iterated)}`"), Loops(body))
        return (Calls(makers[0], (Loops(body),)),) if makers else (*self.read(iterated), Loops(body))

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Item]:
        targets = targets_of(node)
        if node.value is not None:
            yield from self.value_given(node, node.value, targets)
        if isinstance(node, ast.AugAssign):  # `self.x += 1` reads the old value first, perhaps of a property
            yield from self.attribute(node.target) if isinstance(node.target, ast.Attribute) else ()
        yield from self.targets(node, *targets)

    def value_given(self, node: ast.stmt, value: ast.expr, targets: list[ast.expr]) -> Iterator[Item]:
        """Yield the items of an assigned value; a second name for the object or its fixtures is unknown code."""
        is_local = all(isinstance(target, ast.Name) for target in targets)
        is_partial = isinstance(value, ast.Call) and ast.unparse(value.func).endswith("partial")
        held = value.args if isinstance(value, ast.Call) and is_partial else [value]
        kept = [found for inner in held for found in self.bound_methods(inner)]
        if self.holds_self(value) and hasattr(self.owner, "staged"):
            yield self.unknown(node, f"gives `{self.self_name}` another name")
        if self.is_fixtures(value) and any(_target_name(target) != "fixtures" for target in targets):
            # Under an attribute, any method may use it; a local variable stays in this one.
            yield self.unknown(node, "gives `fixtures` another name", may_call=not is_local)
        if kept and (is_partial or not is_local):
            yield self.unknown(node, "keeps a bound method")
        # A lambda or a method under a local name counts at each use of the name (`local_name`), and not here.
        named = isinstance(value, ast.Lambda) or (kept and isinstance(value, ast.Attribute | ast.IfExp))
        if not (is_local and named):
            yield from self.read(value)

    # ---- expressions ---------------------------------------------------------------------------------------------

    def local_name(self, name: str) -> Iterator[Item]:
        """Yield the items at a use of a local name: of a nested function, a lambda, a method under another name."""
        if name not in self.open_names:  # not inside of its own value: a nested function may call itself
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

    def targets(self, node: ast.AST, *targets: ast.expr) -> Iterator[Item]:
        """Yield the fixtures that an assignment to targets defines, in a statement, a loop or a ``with``."""
        for inner in (inner for target in targets for inner in ast.walk(target)):
            if isinstance(inner, ast.Subscript) and self.is_fixtures(inner.value):
                yield Defines(self.name_of(inner.slice), None, self.line(node))
            elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Subscript):
                yield from self.read(inner)
            elif isinstance(inner, ast.Subscript):
                yield from self.block([inner.value, inner.slice])
            elif isinstance(inner, ast.Attribute) and self.is_self(inner.value):
                yield from self.accessor(inner)

    def attribute(self, node: ast.Attribute) -> Iterator[Item]:
        """Yield the items of code that may run as an attribute of the object is read."""
        if not isinstance(inspect.getattr_static(self.owner, node.attr, None), property):
            yield from self.accessor(node)
        if node.attr == "staged" or (node.attr.startswith("__") and not node.attr.endswith("__")):
            yield self.unknown(node, f"reads `{self.self_name}.{node.attr}`")
        # A property, or a bound method that is handed to other code: either may be called here. A method that
        # `__init__` hands on may be kept, and be called at any time.
        if (found := self.own_method(node)) is not None:
            if self.function.__name__ == "__init__" and not self.is_property(node):
                yield self.unknown(node, "keeps a bound method")
            yield Calls(found)

    def accessor(self, node: ast.Attribute) -> Iterator[Unknown]:
        runs = unread_accessors(self.owner, node.attr)
        if runs:
            yield self.unknown(node, f"uses `{self.self_name}.{node.attr}`, {runs}")

    def comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp) -> Outline:
        inside = self.block([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        # The last `for` is the innermost loop.
        for clause in reversed(node.generators):
            inside = self.loop(clause.iter, (*self.block(clause.ifs), *inside))
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
            yield parameter_touches(chosen)
            yield Calls(chosen)
        elif called is not None:
            yield from self.arguments(node)
            yield Calls(called)
            # The outline of the called method knows the fixtures only under the name `fixtures`.
            if "fixtures" not in called.__code__.co_varnames and any(map(self.is_fixtures, node.args)):
                yield self.unknown(node, f"hands `fixtures` to `{called.__qualname__}` under another name")
        else:
            yield from self.foreign_call(node)

    def arguments(self, node: ast.Call) -> Outline:
        return self.block([*node.args, *(keyword.value for keyword in node.keywords)])

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

    def foreign_call(self, node: ast.Call) -> Iterator[Item]:
        """Yield the items of a call of unread code, which may call every function that it is given."""
        yield from self.read(node.func)
        yield from self.arguments(node)
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            can_open = self.holds_self(given) and hasattr(self.owner, "staged")
            if (can_open or self.is_fixtures(given)) and not is_harmless(node.func):
                yield self.unknown(
                    node, f"hands `{ast.unparse(given)}` to `{ast.unparse(node.func)}`", may_call=can_open
                )
        yield from self.named_call(node)
        if is_name(node.func, "next") and any(map(self.makers_of, node.args)):
            yield self.unknown(node, "advances a generator with `next`")

    def named_call(self, node: ast.Call) -> Iterator[Touches]:
        """Yield the fixtures that the parameters of ``x`` name, for ``self.call_by_name(self.x)``."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "call_by_name" and self.is_self(function.value):
            for called in map(self.own_method, node.args):
                if called is not None:
                    yield parameter_touches(called)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a branch leaves the block, so that the statements after it belong to the other branch."""
    return isinstance(body[-1], _LEAVING)


def _target_name(target: ast.expr) -> str:
    """Return the name of a variable or an attribute; of any other target the name that is harmless."""
    return target.id if isinstance(target, ast.Name) else getattr(target, "attr", "fixtures")


def _raises(branch: Sequence[ast.AST]) -> bool:
    """Whether a branch raises at its end, and has no other way out."""
    parts = (inner for statement in branch[:-1] for inner in ast.walk(statement))
    return isinstance(branch[-1], ast.Raise) and not any(isinstance(inner, _LEAVING) for inner in parts)


def parameter_touches(called: FunctionType) -> Touches:
    """Return the reads of a method that is called with the fixtures that its parameters name."""
    return Touches(frozenset([*inspect.signature(called).parameters][1:]), modifies=False, by=called)
