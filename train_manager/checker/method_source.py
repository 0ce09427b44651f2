"""The source of one method, with the meaning of its expressions: the object, its fixtures, its methods, names."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, TypeGuard, is_typeddict

from train_manager.core.extensible import staged
from train_manager.telling.source_locations import display_path

ANYTHING = "*"
"""Stands among names for a name that is not written in the source: any name may be there."""

NEVER_LOOKED_INTO = "train_manager.core."
"""The core's own methods open no stages of their own."""

Names = frozenset[str]


def method(owner: type, name: str) -> FunctionType | None:
    """Return the function behind a method, or the getter of a property, of a class; None for anything else."""
    found = inspect.getattr_static(owner, name, None)  # runs no property or descriptor
    if isinstance(found, property | cached_property):
        found = found.fget if isinstance(found, property) else found.func
    found = inspect.unwrap(found) if callable(found) else None
    return found if isinstance(found, FunctionType) else None


def unread_accessors(owner: type, name: str) -> str:
    """Return a description of the code that an attribute runs unread, as it is got or set; empty if none may matter.

    Such code is the setter and the deleter of a property, and the ``__get__`` or ``__set__`` of another class:
    ``partialmethod``, ``singledispatchmethod``, a descriptor of the user's.
    """
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, property):
        setters = (one for one in (found.fset, found.fdel) if isinstance(one, FunctionType))
        return "the setter of a property" if any(may_matter(one, owner) for one in setters) else ""
    kind = type(found)
    # Functions have a `__get__` too, but in C: only code in Python may open stages.
    code = [getattr(kind, does, None) for does in ("__get__", "__set__")]
    is_read = isinstance(found, cached_property) or kind.__module__.startswith("train_manager.")
    return f"a {kind.__name__}" if not is_read and any(isinstance(one, FunctionType) for one in code) else ""


def may_matter(function: FunctionType, owner: type) -> bool:
    """Return whether unread code may open stages or define fixtures: it names them, or a method of its object."""
    if (function.__module__ or "").startswith("train_manager."):  # setters of this library do neither
        return False
    methods = (method(owner, name) for name in names_in(function.__code__))
    own = (found for found in methods if found is not None and not found.__module__.startswith(NEVER_LOOKED_INTO))
    return names_stages(function) or any(True for _ in own)


def names_stages(function: FunctionType) -> bool:
    """Return whether a function names stages or fixtures, or ``getattr``, which may find them by any name."""
    return not names_in(function.__code__).isdisjoint(("staged", "fixtures", "getattr"))


def names_in(code: CodeType) -> set[str]:
    """Return the names in code, and in the code of functions inside it."""
    inner = (names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *code.co_varnames}.union(*inner)


@dataclass
class MethodSource:
    """The source of one method, as it runs on an object of one class."""

    function: FunctionType  # the method
    owner: type  # the class of the object
    definition: ast.FunctionDef | ast.AsyncFunctionDef  # the source of the method
    nodes: list[ast.AST] = field(init=False)  # all nodes of the source
    self_name: str = field(init=False)  # of the object in the method, mostly `self`; empty for `def method(*args)`
    used: set[str] = field(init=False)  # the names that are read anywhere
    # The functions defined inside the method, and the values assigned to each local variable, by name.
    nested: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(init=False, default_factory=dict)
    values: dict[str, list[ast.expr]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        arguments = [*self.definition.args.posonlyargs, *self.definition.args.args]
        self.self_name = arguments[0].arg if arguments else ""
        self.nodes = [*ast.walk(self.definition)]
        self.used = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not self.definition:
                self.nested.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in targets_of(node):
                    if isinstance(target, ast.Name):
                        self.values.setdefault(target.id, []).append(node.value)

    def line(self, node: Any) -> str:
        """Return the line of a node as ``file:line``; nodes count lines from the beginning of the method."""
        code = self.function.__code__
        return f"{display_path(code.co_filename)}:{code.co_firstlineno + node.lineno - 1}"

    # ---- the object and its fixtures -----------------------------------------------------------------------------

    def is_self(self, node: ast.expr) -> bool:
        return bool(self.self_name) and is_name(node, self.self_name)

    def holds_self(self, node: ast.expr) -> bool:
        """Whether an expression is the object itself, or a list, dict or ``*args`` that holds it."""
        if isinstance(node, ast.Starred):  # `def method(*args)`: the object is the first of them
            vararg = self.definition.args.vararg
            return not self.self_name and vararg is not None and is_name(node.value, vararg.arg)
        inner = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", ())
        return self.is_self(node) or any(map(self.holds_self, inner))

    def is_fixtures(self, node: ast.expr) -> bool:
        """Whether an expression is ``self.fixtures``, ``extensible.fixtures`` or the parameter of a hook."""
        return (isinstance(node, ast.Attribute) and node.attr == "fixtures") or is_name(node, "fixtures")

    def is_cells(self, node: ast.expr) -> bool:
        """Whether an expression is ``self._store.cells``, through which the loop of this library reads fixtures."""
        match node:
            case ast.Attribute(value=ast.Attribute(value=holder, attr="_store"), attr="cells"):
                return self.is_self(holder)
        return False

    def chosen_method(self, node: ast.expr) -> FunctionType | None:
        """Return the method ``x`` of ``self.chosen.x``, if that attribute holds own methods that are called by name."""
        match node:
            case ast.Attribute(value=ast.Attribute(value=holder, attr=via), attr=name) if self.is_self(holder):
                options = getattr(self.owner, "_options", None)  # an extension has none
                return method(self.owner, name) if options and via in options.words.called_by else None
        return None

    def is_staged(self, node: ast.expr) -> bool:
        """Whether an expression is ``self.staged``, or the function ``staged`` under whatever name."""
        if isinstance(node, ast.Name):
            return node.id == "staged" or self.outer(node.id) is staged
        if not isinstance(node, ast.Attribute) or node.attr != "staged" or not isinstance(node.value, ast.Name):
            return False
        return self.is_self(node.value) or getattr(self.outer(node.value.id), "staged", None) is staged

    def stage_condition(self, node: ast.expr) -> tuple[str, bool] | None:
        """Return the stage of a condition such as ``"eval" not in self.fixtures.path``, and whether it must be open."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner) if found := self.stage_condition(inner):
                return found[0], not found[1]
            case ast.Compare(left=ast.Constant(str(stage)), ops=[ast.In() | ast.NotIn() as is_in], comparators=[path]):
                return (stage, isinstance(is_in, ast.In)) if self.is_path(path) else None
        return None

    def is_path(self, node: ast.expr) -> bool:
        """Whether an expression is the path of open stages: of the fixtures, of their store, or of a stage."""
        if isinstance(node, ast.Name):
            return self.is_only_assigned(node.id) and all(map(self.is_path, self.values[node.id]))
        match node:
            case ast.Attribute(value=ast.Attribute(attr="_store"), attr="path" | "open"):
                return True
            case ast.Attribute(value=ast.Subscript(value=holder, slice=ast.Constant("stage")), attr="path"):
                return self.is_fixtures(holder)
            case ast.Attribute(value=holder, attr="path"):
                return self.is_fixtures(holder) or is_name(holder, "stage")
        return False

    def outer(self, name: str) -> Any:
        """Return the value of a name in the enclosing functions or in the module; None if there is none."""
        free = self.function.__code__.co_freevars
        if name in free and self.function.__closure__:
            with contextlib.suppress(ValueError):  # the enclosing function has not assigned the name yet
                return self.function.__closure__[free.index(name)].cell_contents
        return self.function.__globals__.get(name)

    # ---- the methods of the object -------------------------------------------------------------------------------

    def own_method(self, node: ast.expr) -> FunctionType | None:
        """Return the method that ``self.x`` or ``super().x`` is, unless it is one of the core's own."""
        if not isinstance(node, ast.Attribute):
            return None
        if self.is_self(node.value):
            found = method(self.owner, node.attr)
        elif isinstance(node.value, ast.Call) and is_name(node.value.func, "super"):
            found = self.inherited_method(node.attr)
        else:
            return None
        return None if found is None or (found.__module__ or "").startswith(NEVER_LOOKED_INTO) else found

    def inherited_method(self, name: str) -> FunctionType | None:
        """Return the next method of this name after the class that holds this function."""
        later = iter(self.owner.__mro__)  # the loop leaves it behind the class that holds this function
        for cls in later:
            if method(cls, self.function.__name__) is self.function and self.function.__name__ in vars(cls):
                break
        return next((method(cls, name) for cls in later if name in vars(cls)), None)

    def bound_methods(self, node: ast.expr) -> list[FunctionType]:
        """Return the methods of the object that an expression holds without a call."""
        found = (self.own_method(inner) for inner in _outside_calls(node) if not self.is_property(inner))
        return [function for function in found if function is not None]

    def makers_of(self, node: ast.expr, known: frozenset[str] = frozenset()) -> list[FunctionType]:
        """Return the generator methods that a loop iterates over, also through builtins and local names.

        Args:
            node: what the loop iterates over.
            known: local names that are looked at already: a name may be assigned from itself.
        """
        if isinstance(node, ast.Call):  # `self.batches()`, or `enumerate(self.batches())`
            own = self.own_method(node.func)
            inner = node.args if is_harmless(node.func) else []
            return [own] if own is not None else [maker for node in inner for maker in self.makers_of(node, known)]
        if not isinstance(node, ast.Name) or node.id in known or not self.is_only_assigned(node.id):
            return []
        return [maker for value in self.values[node.id] for maker in self.makers_of(value, known | {node.id})]

    def is_property(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and isinstance(
            inspect.getattr_static(self.owner, node.attr, None), property | cached_property
        )

    # ---- literal names -------------------------------------------------------------------------------------------

    def constants(self, node: ast.expr | None, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Return the strings that an expression may be; none if one of them is not written in the source.

        Args:
            node: the expression.
            known: local names that are looked at already: a name that is assigned from itself is none of the source.
        """
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return (node.value,)
        if isinstance(node, ast.IfExp):
            options = [node.body, node.orelse]
        elif isinstance(node, ast.Name) and not self.is_local(node.id):
            value = self.function.__globals__.get(node.id)
            return (value,) if isinstance(value, str) else ()
        elif isinstance(node, ast.Name) and node.id not in known and self.is_only_assigned(node.id):
            options, known = self.values[node.id], known | {node.id}
        else:
            return ()
        found = [self.constants(option, known) for option in options]
        return tuple(name for names in found for name in names) if all(found) else ()

    def name_of(self, node: ast.expr | None) -> Names:
        """Return the fixture names that an expression may be; ANYTHING if the source does not say."""
        return frozenset(self.constants(node) or (ANYTHING,))

    def keys_of(self, node: ast.expr | None, known: frozenset[str] = frozenset()) -> Names:
        """Return the keys of a dict that is written in the source, directly or in a local variable.

        Args:
            node: the dict.
            known: local names that are looked at already: a dict that is assigned from itself adds no key.
        """
        if node is None or is_none(node):
            return frozenset()
        if isinstance(node, ast.Dict):  # a key that is None stands for `**other`
            pairs = zip(node.keys, node.values, strict=True)
            return frozenset().union(
                *(self.name_of(key) if key else self.keys_of(value, known) for key, value in pairs)
            )
        if isinstance(node, ast.IfExp):
            return self.keys_of(node.body, known) | self.keys_of(node.orelse, known)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.keys_of(node.left, known) | self.keys_of(node.right, known)
        if isinstance(node, ast.Call) and is_name(node.func, "dict") and not node.args:
            return frozenset(keyword.arg or ANYTHING for keyword in node.keywords)
        if isinstance(node, ast.Name) and (keys := self.keys_by_type(node.id)):
            return keys
        if isinstance(node, ast.Name) and node.id in known:
            return frozenset()
        # A local dict that other code cannot write into: its first keys, and the keys added to it.
        if isinstance(node, ast.Name) and self.is_only_assigned(node.id) and not self.is_handed_on(node.id):
            given = (self.keys_of(value, known | {node.id}) for value in self.values[node.id])
            return frozenset().union(*given, self.keys_added(node.id))
        return frozenset({ANYTHING})

    def keys_by_type(self, name: str) -> Names:
        """Return the keys of a local ``TypedDict`` that an own method has returned."""
        values = self.values.get(name, ())
        called = self.own_method(values[0].func) if len(values) == 1 and isinstance(values[0], ast.Call) else None
        hint = None if called is None else called.__annotations__.get("return")
        # With `from __future__ import annotations`, the hint is a text.
        kind = called.__globals__.get(hint) if called is not None and isinstance(hint, str) else hint
        return frozenset(kind.__annotations__) if is_typeddict(kind) else frozenset()

    def keys_added(self, name: str) -> Names:
        """Return the keys that are written into a local dict: ``given["train_dir"] = ...``."""
        targets = [target for node in self.nodes if isinstance(node, ast.Assign) for target in node.targets]
        keys = [t.slice for t in targets if isinstance(t, ast.Subscript) and is_name(t.value, name)]
        return frozenset().union(*map(self.name_of, keys))

    def is_local(self, name: str) -> bool:
        """Whether a name is a variable of the method, or of a function or comprehension inside it."""
        stored = (node for node in self.nodes if is_name(node, name) and isinstance(node.ctx, ast.Store))
        free = self.function.__code__.co_freevars
        return name in free or any(True for _ in stored) or self.is_parameter(name)

    def is_parameter(self, name: str) -> bool:
        return any(isinstance(node, ast.arg) and node.arg == name for node in self.nodes)

    def is_only_assigned(self, name: str) -> bool:
        """Whether plain assignments alone give a local variable its value; a loop variable, for example, has others."""
        # `values` has an entry for each plain assignment; a `for`, a `with` or an import stores the name otherwise.
        stores = sum(is_name(node, name) and isinstance(node.ctx, ast.Store) for node in self.nodes)
        return 0 < stores == len(self.values.get(name, ())) and not self.is_parameter(name)

    def is_handed_on(self, name: str) -> bool:
        """Whether code that is not read may write into a local dict: its own methods, or a function that gets it."""
        users = [node for node in self.nodes if any(is_name(child, name) for child in ast.iter_child_nodes(node))]
        return not all(self.leaves_dict(user, name) for user in users)

    def leaves_dict(self, user: ast.AST, name: str) -> bool:
        """Whether a node that uses a local dict writes no key that ``keys_added`` does not see."""
        if isinstance(user, ast.Attribute):
            return user.attr in ("get", "items", "keys", "values", "copy")
        if isinstance(user, ast.Call):
            return self.is_staged(user.func) or self.is_update(user.func)
        if isinstance(user, ast.Assign):
            return not is_name(user.value, name)  # else it gives the dict a second name
        return isinstance(user, ast.Subscript | ast.Compare | ast.Dict | ast.AnnAssign)

    def is_update(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute):
            return False
        return node.attr in ("update", "define_all") and self.is_fixtures(node.value)


def is_name(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_harmless(node: ast.expr) -> bool:
    """Whether a function is a builtin that opens no stages; builtins that take the name of an attribute may."""
    names = ("getattr", "setattr", "delattr", "iter")
    return isinstance(node, ast.Name) and node.id not in names and hasattr(builtins, node.id)


def targets_of(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument that a call gives for a parameter; None if it gives none."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[position] if position < len(call.args) else named.get(name)


def _outside_calls(node: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression and the ones inside it, but not the arguments of calls: these are handed on, not kept."""
    if not isinstance(node, ast.Call):
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _outside_calls(child)
