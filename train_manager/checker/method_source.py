"""The source of one method, with the meaning of its expressions: the object, its fixtures, names."""

from __future__ import annotations

import ast
import builtins
import inspect
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, TypeGuard

from train_manager.checker.outline import Names
from train_manager.core.extensible import staged
from train_manager.telling.source_locations import display_path

ANYTHING = "*"
"""Stands among names for a name that is not written in the source: any name may be there."""


def function_of(found: object) -> FunctionType | None:
    """Return the function behind an attribute of a class: a method, or the getter of a property."""
    if isinstance(found, property | cached_property):
        found = found.fget if isinstance(found, property) else found.func
    found = inspect.unwrap(found) if callable(found) else None
    return found if isinstance(found, FunctionType) else None


def names_stages(function: FunctionType) -> bool:
    """Return whether a function names stages or fixtures, or ``getattr``, which may find them by any name."""
    return not names_in(function.__code__).isdisjoint(("staged", "fixtures", "getattr"))


def names_in(code: CodeType) -> set[str]:
    """Return the names in code, and in the code of functions inside it."""
    inner = (names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *code.co_varnames}.union(*inner)


@dataclass
class MethodSource:
    """The source of one method."""

    function: FunctionType  # the method
    definition: ast.FunctionDef | ast.AsyncFunctionDef  # the source of the method
    nodes: list[ast.AST] = field(init=False)  # all nodes of the source
    self_name: str = field(init=False)  # of the object in the method: mostly `self`; of `def method(*args)`, `args`
    # The values assigned to each local variable, by name.
    values: dict[str, list[ast.expr]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        given = self.definition.args
        arguments = [*given.posonlyargs, *given.args, *([given.vararg] if given.vararg else [])]
        self.self_name = arguments[0].arg if arguments else ""
        self.nodes = [*ast.walk(self.definition)]
        for node in self.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in targets_of(node):
                    if isinstance(target, ast.Name):
                        self.values.setdefault(target.id, []).append(node.value)

    def line(self, node: Any) -> str:
        """Return the line of a node as ``file:line``; nodes count lines from the beginning of the method."""
        code = self.function.__code__
        return f"{display_path(code.co_filename)}:{code.co_firstlineno + node.lineno - 1}"

    # ---- the object and its fixtures -----------------------------------------------------------------------------

    def is_self(self, node: ast.AST) -> bool:
        return bool(self.self_name) and is_name(node, self.self_name)

    def is_fixtures(self, node: ast.AST) -> bool:
        """Whether an expression is ``self.fixtures``, ``extensible.fixtures`` or the parameter of a hook."""
        return (isinstance(node, ast.Attribute) and node.attr == "fixtures") or is_name(node, "fixtures")

    def is_staged(self, node: ast.expr) -> bool:
        """Whether an expression is ``self.staged``, or the function ``staged`` under whatever name."""
        known = self.function.__globals__
        if isinstance(node, ast.Name):
            return node.id == "staged" or known.get(node.id) is staged
        if not isinstance(node, ast.Attribute) or node.attr != "staged" or not isinstance(node.value, ast.Name):
            return False
        return self.is_self(node.value) or getattr(known.get(node.value.id), "staged", None) is staged

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

    def keys_of(self, node: ast.expr | None) -> Names:
        """Return the keys of a dict that is written where it is used; ANYTHING for any other dict."""
        if node is None or is_none(node):
            return frozenset()
        if isinstance(node, ast.Dict):  # a key that is None stands for `**other`
            pairs = zip(node.keys, node.values, strict=True)
            return frozenset().union(*(self.name_of(key) if key else self.keys_of(value) for key, value in pairs))
        if isinstance(node, ast.IfExp):
            return self.keys_of(node.body) | self.keys_of(node.orelse)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.keys_of(node.left) | self.keys_of(node.right)
        if isinstance(node, ast.Call) and is_name(node.func, "dict") and not node.args:
            return frozenset(keyword.arg or ANYTHING for keyword in node.keywords)
        return frozenset({ANYTHING})

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


def is_name(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_harmless(node: ast.expr) -> bool:
    """Whether a function is a builtin that opens no stages; builtins that take the name of an attribute may."""
    names = ("getattr", "setattr", "delattr", "iter", "next", "map", "filter")
    return isinstance(node, ast.Name) and node.id not in names and hasattr(builtins, node.id)


def targets_of(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument that a call gives for a parameter; None if it gives none."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return call.args[position] if position < len(call.args) else named.get(name)
