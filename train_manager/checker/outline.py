"""What a method does with stages and fixtures, read from its source: an outline, made once for each function.

Branches stand one after the other: whatever may be defined counts as defined, so that the check never cries wolf.

    def fit(self, data):                             Opens fit (data)
        with self.staged("fit", {"data": data}):         Loops
            for batch in data:                               Calls step
                self.step(batch)                         Defines result
            self.fixtures["result"] = 1
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import final

from train_manager.checker.method_source import Names, SourceOf, method


@final
@dataclass(frozen=True, slots=True)
class Opens:
    """``with self.staged(...)``; a stage of None has a name that is made at run time."""

    stage: str | None
    given: Names
    line: str
    body: tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True)
class Defines:
    """Fixtures that come alive, in the innermost stage or in a named one around it."""

    names: Names
    stage: str | None
    line: str


@final
@dataclass(frozen=True, slots=True)
class Touches:
    """Fixtures that the stage's own code reads or modifies."""

    names: Names
    modifies: bool
    by: FunctionType | None = None  # the method that is called with them, by name


@final
@dataclass(frozen=True, slots=True)
class Calls:
    """A call of another method of the same object, or a bound method handed on.

    Attributes:
        function: the method.
        body: what runs at its ``yield``, where it is a context manager or a generator.
    """

    function: FunctionType
    body: tuple[Node, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Loops:
    """What runs again and again."""

    body: tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True)
class Yields:
    """Where the body of a ``with`` or ``for`` over this method runs."""


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that may open stages and define fixtures, and cannot be read."""

    what: str


Node = Opens | Defines | Touches | Calls | Loops | Yields | Unknown


def outline(function: FunctionType, owner: type) -> tuple[Node, ...]:
    """The outline of a method, as it runs on an object of class ``owner``."""
    made: dict[FunctionType, tuple[Node, ...]] = vars(owner).get(_KEPT) or {}
    if not made and not owner.__flags__ & _IMMUTABLE:
        setattr(owner, _KEPT, made)  # with the class, so that both can go
    if function not in made:
        made[function] = _read(function, owner)
    return made[function]


_KEPT = "__train_manager_outlines__"
_IMMUTABLE = 1 << 8  # a builtin class


def _read(function: FunctionType, owner: type) -> tuple[Node, ...]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        tree = None
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return (Unknown(f"{function.__qualname__} has no source to read"),) if _may_matter(function, owner) else ()
    wrapped = (Unknown(f"{function.__qualname__} has a decorator that opens stages or writes fixtures"),)
    nodes = tuple(_Reader(function, owner, tree).block(tree.body))
    return (*wrapped, *nodes) if any(map(_names_stages, _wrappers(function, owner))) else nodes


def _may_matter(function: FunctionType, owner: type) -> bool:
    """Whether unread code may open stages: it names them, or a method of its object. A dataclass's does not."""
    return _names_stages(function) or any(method(owner, name) for name in _names_in(function.__code__))


def _names_stages(function: FunctionType) -> bool:
    return not _names_in(function.__code__).isdisjoint(("staged", "fixtures", "getattr"))


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *code.co_varnames}.union(*inner)


def _wrappers(function: FunctionType, owner: type) -> Iterator[FunctionType]:
    """What decorators have put around a method with ``functools.wraps``."""
    for cls in owner.__mro__:
        outer = vars(cls).get(function.__name__)
        if callable(outer) and inspect.unwrap(outer) is function:
            while outer is not function:
                if isinstance(outer, FunctionType) and not (outer.__module__ or "").startswith("train_manager."):
                    yield outer
                outer = getattr(outer, "__wrapped__", function)


@final
class _Reader(SourceOf):
    """Turns the statements of one function into nodes."""

    # ---- statements ----------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> Iterator[Node]:
        for statement in statements:
            yield from self.statement(statement)

    def statement(self, node: ast.stmt) -> Iterator[Node]:
        if isinstance(node, ast.With | ast.AsyncWith):
            yield from self.with_items(node.items, node.body)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from self.loop_over(node.iter, [*node.body], node.orelse)
        elif isinstance(node, ast.While):
            yield Loops((*self.expression(node.test), *self.block(node.body)))
            yield from self.block(node.orelse)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from self.assignment(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in self.used:  # a nested function counts where its name is used
                yield from self.block(node.body)
        elif isinstance(node, ast.ClassDef):
            return
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.child(child)

    def child(self, node: ast.AST) -> Iterator[Node]:
        if isinstance(node, ast.stmt):
            yield from self.statement(node)
        elif isinstance(node, ast.expr):
            yield from self.expression(node)
        else:  # handlers, match cases, comprehensions, keywords
            for child in ast.iter_child_nodes(node):
                yield from self.child(child)

    def with_items(self, items: list[ast.withitem], body: list[ast.stmt]) -> Iterator[Node]:
        if not items:
            yield from self.block(body)
            return
        context, rest = items[0].context_expr, items[1:]
        if isinstance(context, ast.Call) and self.is_staged(context.func):
            inside = tuple(self.with_items(rest, body))
            yield from self.stage_opened(context, inside)
        elif isinstance(context, ast.Call) and (called := self.own_method(context.func)) is not None:
            yield from self.arguments(context)
            yield Calls(called, tuple(self.with_items(rest, body)))
        else:
            if self.is_me(context):
                yield Unknown(f"{self.place(context)} enters `{self.me}` itself")
            yield from self.expression(context)
            yield from self.with_items(rest, body)

    def stage_opened(self, call: ast.Call, inside: tuple[Node, ...]) -> Iterator[Node]:
        arguments = dict(zip(("name", "fixtures", "defaults"), call.args, strict=False))
        arguments.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})
        for argument in arguments.values():
            yield from self.expression(argument)
        given = self.names_in(arguments.get("fixtures")) | self.names_in(arguments.get("defaults"))
        stages = self.constants(arguments.get("name"))
        for stage in stages or (None,):
            yield Opens(stage, given, self.line(call), inside)

    def loop_over(self, iterated: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> Iterator[Node]:
        yield from self.looped(iterated, tuple(self.block(body)))
        yield from self.block(orelse)

    def looped(self, iterated: ast.expr, body: tuple[Node, ...]) -> Iterator[Node]:
        """A body for each item; where methods of the same object make the items, it runs at their ``yield``."""
        sources = [iterated, *(value for node in ast.walk(iterated) for value in self.local_values(node))]
        makers = [
            called
            for source in sources
            for node in ast.walk(source)
            if isinstance(node, ast.Call) and (called := self.own_method(node.func)) is not None
        ]
        inside: tuple[Node, ...] = (Loops(body),)
        iterates = method(self.owner, "__iter__") if self.is_me(iterated) else None
        makers += [iterates] if iterates is not None else []
        for maker in reversed(makers):
            inside = (Calls(maker, inside),)
        if not makers:
            yield from self.expression(iterated)
        yield from inside

    def own_generators(self, node: ast.expr) -> list[FunctionType]:
        """Methods of the object that are called to make what an expression holds."""
        sources = [node, *self.local_values(node)]
        calls = (part for source in sources for part in ast.walk(source) if isinstance(part, ast.Call))
        return [found for call in calls if (found := self.own_method(call.func)) is not None]

    def local_values(self, node: ast.AST) -> list[ast.expr]:
        """What a local variable may be."""
        return self.assigned(node.id) if isinstance(node, ast.Name) else []

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Node]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None:
            if self.holds_me(node.value) and hasattr(self.owner, "staged"):
                yield Unknown(f"{self.place(node)} gives `{self.me}` another name")
            if self.is_fixtures(node.value) and any(getattr(t, "id", "fixtures") != "fixtures" for t in targets):
                yield Unknown(f"{self.place(node)} gives `fixtures` another name")
            local = all(isinstance(target, ast.Name) for target in targets)
            if local and isinstance(node.value, ast.Lambda):
                return  # like a nested function
            if self.bound_methods(node.value) and not local:
                yield Unknown(f"{self.place(node)} keeps a bound method")
            if not (self.bound_methods(node.value) and local and isinstance(node.value, ast.Attribute | ast.IfExp)):
                yield from self.expression(node.value)  # a method under a local name counts where the name is used
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Subscript) and self.is_fixtures(part.value):
                yield Defines(self.name_of(part.slice), None, self.line(node))
            elif isinstance(part, ast.Subscript):
                yield from self.expression(part.value)
                yield from self.expression(part.slice)

    # ---- expressions ---------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Iterator[Node]:
        if isinstance(node, ast.Call):
            yield from self.call(node)
        elif isinstance(node, ast.Yield):
            if node.value is not None:
                yield from self.expression(node.value)
            yield Yields()
        elif isinstance(node, ast.YieldFrom):
            inner = self.own_method(node.value.func) if isinstance(node.value, ast.Call) else None
            yield Calls(inner, (Yields(),)) if inner else Yields()
        elif isinstance(node, ast.Subscript) and (self.is_fixtures(node.value)):
            yield Touches(self.name_of(node.slice), modifies=False)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            inside = tuple(inner for part in made for inner in self.expression(part))
            for clause in reversed(node.generators):
                tests = (inner for test in clause.ifs for inner in self.expression(test))
                inside = tuple(self.looped(clause.iter, (*tests, *inside)))
            yield from inside
        elif isinstance(node, ast.Attribute) and self.is_me(node.value):
            found = self.own_method(node)
            if node.attr == "staged":
                yield Unknown(f"{self.place(node)} gives `{self.me}.staged` another name")
            if found is not None:  # a property, or a bound method that is handed on
                if self.function.__name__ == "__init__" and not self.is_property(node):
                    yield Unknown(f"{self.place(node)} keeps a bound method")
                yield Calls(found)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield from self.behind(node.id)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.child(child)

    def behind(self, name: str) -> Iterator[Node]:
        """What may run where a local name is used: a nested function, a lambda, a method under another name."""
        if name in self.open_names:  # it uses itself
            return
        self.open_names.add(name)
        for value in self.assigned(name):
            if isinstance(value, ast.Attribute | ast.IfExp):
                yield from map(Calls, self.bound_methods(value))
            elif isinstance(value, ast.Lambda):
                yield from self.expression(value.body)
            elif isinstance(value, ast.Call):  # partial(self.step)
                yield from map(Calls, (found for part in value.args for found in self.bound_methods(part)))
        for function in self.nested.get(name, ()):
            yield from self.block(function.body)
        self.open_names.discard(name)

    def call(self, node: ast.Call) -> Iterator[Node]:
        called = self.own_method(node.func)
        if self.is_staged(node.func):
            yield Unknown(f"{self.place(node)} opens a stage outside of a `with` statement")
        elif isinstance(node.func, ast.Attribute) and self.is_fixtures(node.func.value):
            yield from self.arguments(node)
            yield from self.fixture_call(node, node.func.attr)
        elif self.is_me(node.func) and (called_itself := method(self.owner, "__call__")) is not None:
            yield from self.arguments(node)
            yield Calls(called_itself)
        elif (chosen := self.chosen_method(node.func)) is not None:
            yield _named_by(chosen)
            yield Calls(chosen)
        elif called is not None:
            yield from self.arguments(node)
            yield Calls(called)
            if "fixtures" not in called.__code__.co_varnames and any(map(self.is_fixtures, node.args)):
                yield Unknown(f"{self.place(node)} hands `fixtures` to `{called.__qualname__}` under another name")
        else:
            yield from self.expression(node.func)
            yield from self.arguments(node)
            yield from self.handed_on(node)
            yield from self.called_by_name(node)
            if getattr(node.func, "id", None) == "next" and any(map(self.own_generators, node.args)):
                yield Unknown(f"{self.place(node)} runs a generator bit by bit")

    def called_by_name(self, node: ast.Call) -> Iterator[Node]:
        """``self.call_by_name(self.x)`` reads what the parameters of ``x`` name."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "call_by_name" and self.is_me(node.func.value):
            for argument in node.args:
                if (called := self.own_method(argument)) is not None:
                    yield _named_by(called)

    def chosen_method(self, node: ast.expr) -> FunctionType | None:
        """``self._chosen.x``: a method that a TrainManager has chosen before, to call it by name in each batch."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)):
            return None
        is_chosen = node.value.attr == "_chosen" and self.is_me(node.value.value)
        return method(self.owner, node.attr) if is_chosen else None

    def arguments(self, node: ast.Call) -> Iterator[Node]:
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from self.expression(argument)

    def handed_on(self, node: ast.Call) -> Iterator[Node]:
        """The object itself, or its fixtures, given to code that is not read."""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            can_open = self.holds_me(argument) and hasattr(self.owner, "staged")
            if (can_open or self.is_fixtures(argument)) and not self.is_harmless(node.func):
                yield Unknown(f"{self.place(node)} hands `{ast.unparse(argument)}` to `{ast.unparse(node.func)}`")

    def fixture_call(self, node: ast.Call, method: str) -> Iterator[Node]:
        values = dict(zip(("first", "second", "third"), node.args, strict=False))
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if method in ("define", "setdefault"):
            stage = keywords.get("stage", values.get("third")) if method == "define" else None
            stages = self.constants(stage) if stage is not None else ()
            name = self.name_of(keywords.get("name", values.get("first")))
            if stage is not None and not stages and not self.is_none(stage):
                yield Unknown(f"{self.place(node)} defines a fixture in a stage named at run time")
            yield Defines(name, stages[0] if stages else None, self.line(node))
        elif method in ("modify", "get"):
            yield Touches(self.name_of(keywords.get("name", values.get("first"))), modifies=method == "modify")
        elif method == "update":
            yield Defines(self.names_in(values.get("first", keywords.get("values"))), None, self.line(node))


def _named_by(called: FunctionType) -> Touches:
    """What a method reads that is called with the fixtures that its parameters name."""
    return Touches(frozenset(list(inspect.signature(called).parameters)[1:]), modifies=False, by=called)
