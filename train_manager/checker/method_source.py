"""What a piece of a method's source stands for: the object itself, its fixtures, its methods, written-out names."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partialmethod
from types import FunctionType
from typing import Any

from train_manager.core.locations import shown_path

ANYTHING = "*"
"""Stands among names for what could not be known: any name may be there."""

Names = frozenset[str]


def method(owner: type, name: str) -> FunctionType | None:
    """The function behind a method or property of a class; None for anything else."""
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, cached_property | partialmethod):
        found = found.func
    found = inspect.unwrap(found) if callable(found) else None
    return found if isinstance(found, FunctionType) else None


@dataclass
class SourceOf:
    """The source of one method, as it runs on an object of one class.

    Attributes:
        function: the method.
        owner: the object's class.
        tree: its source.
        me: what it calls the object, mostly ``self``.
    """

    function: FunctionType
    owner: type
    tree: ast.FunctionDef | ast.AsyncFunctionDef
    me: str = field(init=False)
    used: set[str] = field(init=False)  # names that are read anywhere
    nested: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(init=False)  # functions defined inside
    open_names: set[str] = field(init=False, default_factory=set)  # local functions that are being read
    values: dict[str, list[ast.expr]] = field(init=False)  # what is assigned to each local variable

    def __post_init__(self) -> None:
        arguments = [*self.tree.args.posonlyargs, *self.tree.args.args]
        self.me = arguments[0].arg if arguments else ""
        self.values, self.nested, self.used = {}, {}, set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.used.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not self.tree:
                self.nested.setdefault(node.name, []).append(node)
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            for target in targets:
                if value is not None and isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(value)

    def bound_methods(self, node: ast.expr) -> list[FunctionType]:
        """Methods of the same object that an expression holds, uncalled."""
        held = (self.own_method(inner) for inner in _outside_calls(node) if not self.is_property(inner))
        return [found for found in held if found is not None]

    def is_property(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and isinstance(
            inspect.getattr_static(self.owner, node.attr, None), property | cached_property
        )

    def is_me(self, node: ast.expr) -> bool:
        return bool(self.me) and isinstance(node, ast.Name) and node.id == self.me

    def holds_me(self, node: ast.expr) -> bool:
        """The object itself, or a list, dict or ``*args`` that holds it."""
        if isinstance(node, ast.Starred):
            arguments = self.tree.args
            return (
                not self.me
                and isinstance(node.value, ast.Name)
                and node.value.id == getattr(arguments.vararg, "arg", "")
            )
        inner = [*getattr(node, "elts", ()), *(getattr(node, "values", ()) if isinstance(node, ast.Dict) else ())]
        return self.is_me(node) or any(map(self.holds_me, inner))

    def is_fixtures(self, node: ast.expr) -> bool:
        """``self.fixtures``, ``extensible.fixtures``, or the parameter of a hook."""
        if isinstance(node, ast.Attribute):
            return node.attr == "fixtures"
        return isinstance(node, ast.Name) and node.id == "fixtures"

    def is_staged(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id == "staged" or self.is_bare_staged(self.outer(node.id))
        if not isinstance(node, ast.Attribute) or node.attr != "staged" or not isinstance(node.value, ast.Name):
            return False
        module = self.outer(node.value.id)
        return self.is_me(node.value) or self.is_bare_staged(getattr(module, "staged", None))

    def outer(self, name: str) -> Any:
        """What a name that is not local means: in the functions around, or in the module; None where nothing."""
        free = self.function.__code__.co_freevars
        if name in free and self.function.__closure__:
            with contextlib.suppress(ValueError):  # not filled yet
                return self.function.__closure__[free.index(name)].cell_contents
        return self.function.__globals__.get(name)

    def is_bare_staged(self, value: object) -> bool:
        """Whether it is the library's own function, under whatever name."""
        return getattr(value, "__module__", None) == "train_manager.core.extensible" and isinstance(value, FunctionType)

    def is_none(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value is None

    def is_harmless(self, node: ast.expr) -> bool:
        """A builtin, which opens no stages; getattr with a name made at run time may call anything."""
        return isinstance(node, ast.Name) and node.id != "getattr" and hasattr(builtins, node.id)

    def own_method(self, node: ast.expr) -> FunctionType | None:
        """The method that ``self.x`` or ``super().x`` is, unless it is one of the core's own."""
        if not isinstance(node, ast.Attribute):
            return None
        if self.is_me(node.value):
            found = method(self.owner, self.mangled(node.attr))
        elif isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) == "super":
            found = self.inherited(node.attr)
        else:
            return None
        module = "" if found is None else found.__module__ or ""
        return None if module.startswith("train_manager.core.") else found

    def mangled(self, name: str) -> str:
        """The name under which a private method of the class that holds this function is kept: ``__x`` -> ``_A__x``."""
        holder = self.function.__qualname__.split(".")[-2:][0].lstrip("_")
        return f"_{holder}{name}" if name.startswith("__") and not name.endswith("__") else name

    def inherited(self, name: str) -> FunctionType | None:
        """The next method of this name, after the class that holds this function."""
        later = iter(self.owner.__mro__)
        for cls in later:
            if method(cls, self.function.__name__) is self.function and self.function.__name__ in vars(cls):
                break
        return next((method(cls, name) for cls in later if name in vars(cls)), None)

    def name_of(self, node: ast.expr | None) -> Names:
        return frozenset(self.constants(node)) or frozenset({ANYTHING})

    def constants(self, node: ast.expr | None) -> tuple[str, ...]:
        """The strings that an expression may be; none where that cannot be told."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return (node.value,)
        if isinstance(node, ast.IfExp):
            both = self.constants(node.body), self.constants(node.orelse)
            return both[0] + both[1] if all(both) else ()
        if isinstance(node, ast.Name) and not self.is_local(node.id):
            value = self.function.__globals__.get(node.id)
            return (value,) if isinstance(value, str) else ()
        if isinstance(node, ast.Name) and self.is_known(node.id):
            local = [self.constants(value) for value in self.assigned(node.id)]
            return tuple(name for names in local for name in names) if all(local) else ()
        return ()

    def names_in(self, node: ast.expr | None) -> Names:
        """The keys of a dict that is written down, directly or in a local variable."""
        if node is None or self.is_none(node):
            return frozenset()
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            parts = [self.name_of(key) if key is not None else self.names_in(value) for key, value in pairs]
            return frozenset().union(*parts)
        if isinstance(node, ast.IfExp):
            return self.names_in(node.body) | self.names_in(node.orelse)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.names_in(node.left) | self.names_in(node.right)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "dict" and not node.args:
            return frozenset(keyword.arg or ANYTHING for keyword in node.keywords)
        if isinstance(node, ast.Name) and self.is_known(node.id) and not self.is_handed_on(node.id):
            return frozenset().union(*map(self.names_in, self.assigned(node.id)), self.keys_added(node.id))
        return frozenset({ANYTHING})

    def assigned(self, name: str) -> list[ast.expr]:
        """What is assigned to a local variable, all over the function."""
        return self.values.get(name, [])

    def keys_added(self, name: str) -> Names:
        """Keys that are written into a local dict: ``given["train_dir"] = ...``."""
        targets = [
            target
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", None) == name
        ]
        return frozenset().union(*(self.name_of(target.slice) for target in targets))

    def is_local(self, name: str) -> bool:
        code = self.function.__code__
        return name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)

    def is_known(self, name: str) -> bool:
        """Whether a local variable gets its value from plain assignments alone; a parameter comes from outside."""
        bound = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.id == name]
        stores = sum(isinstance(node.ctx, ast.Store) for node in bound)
        parameters = {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        return 0 < stores == len(self.assigned(name)) and name not in parameters

    def is_handed_on(self, name: str) -> bool:
        """Whether a local dict may be written out of sight: by a method of it, or by what it is given to."""
        used = {id(node): node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.id == name}
        for node in ast.walk(self.tree):
            children = {id(child) for child in ast.iter_child_nodes(node)}
            if not children.intersection(used):
                continue
            reads = isinstance(node, ast.Attribute) and node.attr in ("get", "items", "keys", "values", "copy")
            given = isinstance(node, ast.Call) and (self.is_staged(node.func) or self.is_update(node.func))
            bound = isinstance(node, ast.Assign) and id(node.value) not in used
            if not (
                reads or given or bound or isinstance(node, ast.Subscript | ast.Compare | ast.Dict | ast.AnnAssign)
            ):
                return True
        return False

    def is_update(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "update" and self.is_fixtures(node.value)

    def place(self, node: ast.AST) -> str:
        return f"{self.function.__qualname__} ({self.line(node)})"

    def line(self, node: Any) -> str:
        code = self.function.__code__
        return f"{shown_path(code.co_filename)}:{code.co_firstlineno + node.lineno - 1}"


def _outside_calls(node: ast.expr) -> Iterator[ast.expr]:
    """An expression and its parts, but not what calls in it are given: that is handed on, not kept."""
    if not isinstance(node, ast.Call):
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _outside_calls(child)
