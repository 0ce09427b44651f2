"""Values as they are at the time of a call, in the form of ``tree``. The values themselves are not kept.

A value that cannot be written is not an error: the reason is written in its place. A list or a set with such a value
cannot be rebuilt as a whole, while the other arguments of an object, and the other keys of a dict, can.

What looks like a secret is not written, by its name or by its content. A dict that is named as a key or a token is
looked into, as it may describe a module of a model: ``{"token": {"use": "Linear", "from": "trunk"}}``. Inside it
numbers are written, unless they are as long as a key, and of texts only words that files may name and plain names in
small letters, whatever their own names are: in ``{"token": {"value": "9f8e7d6c"}}`` the value is left out. A dict that
is named as a password is left out as a whole, because people choose passwords that read as names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from train_manager.files.secrets import looks_secret, may_have_entries
from train_manager.rebuilding.registry import is_recorded, name_of, words, written_name
from train_manager.rebuilding.tree import MAX_BITS, MAX_TEXT, MAX_VALUES, NOT_REBUILDABLE, Tree
from train_manager.telling.showing import cut

RECORD: Final = "_recorded_arguments"
"""The attribute of an object that holds its record: copies and pickles have it too, and it dies with the object.

Two places of a tree with the same record are the same object, because each object gets a record of its own.
"""

MAX_NESTING: Final = 20  # levels of lists and dicts in one argument
LONG_NUMBER: Final = 10**9  # from here on a whole number may be a key or a token
BYTES_OF_KEY: Final = 16  # as many whole numbers in one list may be the bytes of a key
# Words in small letters, each with a number of at most two digits, joined by _, as in the name of an attribute.
_ATTRIBUTE: Final = re.compile(r"[a-z]{1,15}\d{0,2}(?:_(?:[a-z]{1,15}\d{0,2}|\d{1,2}))*|\d{1,2}", re.ASCII)


def tree_of(value: Any, name: str = "") -> Tree:
    """Return the tree of a value, with the reason in the place of a value that cannot be written.

    >>> tree_of((1, float("inf"))), tree_of(lambda: 1)
    ({'tuple': [1, {'float': 'inf'}]}, {'not_rebuildable': 'a lambda'})
    """
    return _Writer().part(value, name)


def trees_of(values: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the trees of the arguments of one call, by name."""
    # One writer for all arguments: the limit of values is for the whole call.
    writer = _Writer()
    return {name: writer.part(value, name) for name, value in values.items()}


class _NotWritten(Exception):
    """A value cannot be written; the text is the reason. Raised and caught in this file only."""


class _Writer:
    """Writes values as trees, and counts them."""

    def __init__(self) -> None:
        self.left = MAX_VALUES  # values that may still be written
        self.around: list[int] = []  # the ids of the containers around the present value
        self.is_named_secret = False  # a dict around the present value has the name of a key or a token

    def part(self, value: Any, name: str = "") -> Tree:
        """Return the tree of a value; if the value cannot be written, only its own place says so."""
        try:
            if type(value) is dict and may_have_entries(name):
                return self._entries(value)
            if self._looks_secret(name, value):
                raise _NotWritten("what looks like a secret")
            return self.whole(value)
        except _NotWritten as why:
            return {NOT_REBUILDABLE: cut(str(why), 200)}
        except Exception as error:  # a user's class may raise anything in its repr, == or iteration
            return {NOT_REBUILDABLE: cut(f"a {type(value).__name__}, whose look-up raised {type(error).__name__}", 200)}

    def _entries(self, value: dict[Any, Any]) -> Tree:
        """Return the tree of a dict with the name of a key or a token."""
        around, self.is_named_secret = self.is_named_secret, True
        try:
            return self.whole(value)
        finally:
            self.is_named_secret = around

    def _looks_secret(self, name: str, value: Any) -> bool:
        return looks_secret(name, value) or (self.is_named_secret and not _is_open(value))

    def whole(self, value: Any) -> Tree:
        """Return the tree of a value.

        Raises:
            _NotWritten: the value, or a value inside it, cannot be written.
        """
        self.left -= 1
        if self.left < 0:
            raise _NotWritten(f"more than {MAX_VALUES} values")
        write = _PLAIN.get(type(value))
        if write is not None:
            return write(value)
        if type(value) in _CONTAINERS:
            return self._inside(value)
        # The record itself, not a copy: `as_written` recognizes a shared object by it.
        record = getattr(value, "__dict__", {}).get(RECORD)
        return self._other(value) if record is None else record

    def _inside(self, value: Any) -> Tree:
        # A list that holds itself would recurse for ever.
        if id(value) in self.around:
            raise _NotWritten(f"a {type(value).__name__} that contains itself")
        if len(self.around) >= MAX_NESTING:
            raise _NotWritten(f"what is nested deeper than {MAX_NESTING} times")
        self.around.append(id(value))
        tree = _CONTAINERS[type(value)](self, value)
        self.around.pop()
        return tree

    def items(self, values: Iterable[Any]) -> list[Tree]:
        trees = []
        for value in values:
            if self._looks_secret("", value):
                raise _NotWritten("what looks like a secret")
            trees.append(self.whole(value))
        return trees

    def dict(self, value: Mapping[Any, Any]) -> Tree:
        # A key that looks like a secret makes the dict a list of pairs, where `items` refuses it.
        if all(type(key) is str for key in value) and not any(self._looks_secret("", key) for key in value):
            return {"dict": {key: self.part(item, key) for key, item in value.items()}}
        return {"items": [self.items(pair) for pair in value.items()]}

    def set(self, value: Iterable[Any]) -> list[Tree]:
        return sorted(self.items(value), key=repr)  # the order of a set differs from process to process

    def _other(self, value: Any) -> Tree:
        if isinstance(value, Enum):
            return _enum(value)
        if isinstance(value, PurePath):
            return {"path": _text(str(value))}
        if isinstance(value, partial):
            return self._partial(value)
        if isinstance(value, type | FunctionType | BuiltinFunctionType):
            return {"callable": _registered(value)}
        fields = getattr(type(value), "_fields", None)
        if isinstance(value, tuple) and fields is not None and name_of(type(value)) is not None:
            arguments = {name: self.part(item, name) for name, item in zip(fields, value, strict=True)}
            return {"object": name_of(type(value)), "arguments": arguments}
        if type(value).__module__.partition(".")[0] == "omegaconf":  # a DictConfig is not a dict
            return self._inside(dict(value.items()) if isinstance(value, Mapping) else list(value))
        if type(value).__module__.partition(".")[0] in ("torch", "numpy"):
            return self._torch(value)
        raise _NotWritten(_described(value))

    def _partial(self, value: partial[Any]) -> Tree:
        arguments = {name: self.part(item, name) for name, item in value.keywords.items()}
        return {"callable": _registered(value.func), "positional": self.items(value.args), "arguments": arguments}

    def _torch(self, value: Any) -> Tree:
        from train_manager.rebuilding.torch_values import arguments_of, tree_of_tensor, word_of  # after torch itself

        tree = word_of(value) or tree_of_tensor(value, self.whole)
        if tree is not None:
            return tree
        arguments = arguments_of(value)
        if arguments is None:
            raise _NotWritten(_described(value))
        return {
            "object": name_of(type(value)),
            "arguments": {name: self.part(v, name) for name, v in arguments.items()},
        }


def is_plain_name(text: str) -> bool:
    """Return whether a text reads as the name of a module or an option, and cannot be a key or a token.

    >>> [text for text in ("trunk", "blocks.0.norm1", "same", "abc123", "deadBeef", "a" * 16) if is_plain_name(text)]
    ['trunk', 'blocks.0.norm1', 'same']
    >>> [text for text in ("abcd-efgh-ijkl", "correct.horse.battery") if is_plain_name(text)]
    []
    """
    parts = text.split(".")
    named = [part for part in parts if not part.isdecimal()]
    if len(text) > 40 or not 1 <= len(named) <= 2 or len(re.findall(r"\d", text)) > 3:
        return False  # three words and more are a chosen password more often than a path
    return all(_ATTRIBUTE.fullmatch(part) for part in parts)


def _is_open(value: Any) -> bool:
    """Return whether a value inside a dict with the name of a key or a token may be written, or looked into."""
    if isinstance(value, str):
        return is_plain_name(value) or value in words()
    if type(value) is int:
        return abs(value) < LONG_NUMBER
    if type(value) in (list, tuple):
        return sum(type(one) is int for one in value) < BYTES_OF_KEY
    return value is None or type(value) in (bool, float, dict)


def _number(value: float) -> Tree:
    return value if math.isfinite(value) else {"float": repr(value)}


def _whole_number(value: int) -> int:
    if value.bit_length() > MAX_BITS:
        raise _NotWritten(f"a whole number of {value.bit_length()} bits")
    return value


def _text(value: str) -> str:
    if len(value) > MAX_TEXT:
        raise _NotWritten(f"a text of {len(value)} characters")
    return value


def _enum(value: Enum) -> Tree:
    name = name_of(type(value))
    if name is None or type(value).__members__.get(str(value.name)) is not value:
        raise _NotWritten(f"a {type(value).__name__}, an enum that is not recorded")
    return {"enum": name, "member": value.name}


def _registered(value: Any) -> str:
    name = name_of(value)
    if name is None:
        written = written_name(value)
        kind = "class" if isinstance(value, type) else "function"
        raise _NotWritten(f"the {kind} {written}, which is not recorded" if ":" in written else written)
    return name


def _described(value: Any) -> str:
    kind = type(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and kind.__module__.partition(".")[0] in ("torch", "numpy"):
        what = "an array" if kind.__module__ == "numpy" else "a tensor"
        return f"{what} of shape {tuple(shape)}"
    if isinstance(value, MethodType):
        return f"the method {value.__qualname__} of an object"
    base = next((base.__name__ for base in kind.__mro__[1:] if is_recorded(base)), "")
    return f"a {kind.__name__}, which is not recorded" + (f" (its base {base} is)" if base else "")


_PLAIN: Final[Mapping[type, Callable[[Any], Tree]]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: _whole_number,
    float: _number,
    str: _text,
}

_CONTAINERS: Final[Mapping[type, Callable[[_Writer, Any], Tree]]] = {
    list: _Writer.items,
    tuple: lambda writer, value: {"tuple": writer.items(value)},
    set: lambda writer, value: {"set": writer.set(value)},
    frozenset: lambda writer, value: {"frozenset": writer.set(value)},
    dict: _Writer.dict,
}
