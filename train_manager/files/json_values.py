"""Python values as JSON, and back: equal, types included.

A value that JSON has is written as it is. Every other one is an object with a key that begins with ``$``, its mark:

    {"$tuple": [...]}                a tuple
    {"$dict": [[key, value], ...]}   a dict with keys that are not texts; also $OrderedDict and $Counter
    {"$float": "nan"}                nan and infinities; {"$int": "0x..."} a number beyond 64 bits
    {"$bytes": "..."}                in base64

The key of a dict that begins with ``$`` gets another one: ``{"$$tuple": 3}`` is the dict ``{"$tuple": 3}``. A hook of
the caller writes and reads further forms: ``checkpoints/state_tree`` has tensors, ``rebuilding`` has recorded objects.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from train_manager.telling.errors import CheckpointError

DEEPEST: Final = 100
"""Levels of containers that are written: as many can be read again, however deep the calls around the reader are."""

MAPPINGS: Final[dict[type, str]] = {dict: "$dict", OrderedDict: "$OrderedDict", Counter: "$Counter"}
"""The classes of dicts that are written, with their marks; torch puts the subclasses into its states."""

Path = tuple[Any, ...]
"""The keys, names and numbers that lead from the whole to a value."""


@final
class ValueEncoder:
    """Writes values as JSON.

    >>> ValueEncoder()({"step": 3, "betas": (0.9, math.inf)})
    {'step': 3, 'betas': {'$tuple': [0.9, {'$float': 'inf'}]}}

    Args:
        hook: is called with each value, its path, and this object; returns the tree of the value. For a value that it
            has no form for it returns ``encoder.plain(value, path)``; the parts of others are written by
            ``encoder(part, path)``.

    Raises:
        CheckpointError: a value has no form, contains itself, or is nested too deep; the error has its path.
    """

    def __init__(self, hook: Callable[[Any, Path, ValueEncoder], Any] | None = None) -> None:
        self._hook = hook
        self._around: list[int] = []  # the ids of the containers around the present value

    def __call__(self, value: Any, path: Path = ()) -> Any:
        return self.plain(value, path) if self._hook is None else self._hook(value, path, self)

    def plain(self, value: Any, path: Path) -> Any:
        """Return the tree of a value in the forms above; the parts of a container go through the hook."""
        # The exact type counts: a subclass (an IntEnum, a NamedTuple) would come back as its base.
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            # Larger numbers are exact in Python, but other programs read numbers of JSON as 64 bits.
            return value if abs(value) < 1 << 63 else {"$int": hex(value)}
        if kind is float:
            # JSON has no nan and no infinities.
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is bytes:
            return {"$bytes": base64.b64encode(value).decode()}
        if kind in (list, tuple) or kind in MAPPINGS:
            return self._container(value, path)
        raise unsupported_value_error(path, value)

    def items(self, values: Iterable[Any], path: Path) -> list[Any]:
        """Return the trees of the items of a sequence, or of a set."""
        return [self(value, (*path, number)) for number, value in enumerate(values)]

    def _container(self, value: Any, path: Path) -> Any:
        if id(value) in self._around:
            raise CheckpointError(f"{display_keys(path)} contains itself", name=display_keys(path))
        if len(path) > DEEPEST:
            raise CheckpointError(f"{display_keys(path[:5])} > ... is nested more than {DEEPEST} deep")
        self._around.append(id(value))
        try:
            if isinstance(value, dict):
                return self._dict(value, path)
            items = self.items(value, path)
        finally:
            self._around.pop()
        return items if type(value) is list else {"$tuple": items}

    def _dict(self, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        items = [(key, self(item, (*path, key))) for key, item in value.items()]
        # JSON would turn the key 1 into "1", so a dict with other keys than texts is a list of pairs.
        if type(value) is dict and all(type(key) is str for key in value):
            return {f"${key}" if key.startswith("$") else key: item for key, item in items}
        return {MAPPINGS[type(value)]: [[self(key, (*path, None)), item] for key, item in items]}


@final
class Decoder:
    """Reads what ``ValueEncoder`` has written.

    >>> Decoder()({"betas": {"$tuple": [0.9, {"$float": "inf"}]}})
    {'betas': (0.9, inf)}

    Args:
        hook: is called with each object and list of the tree, its path, and this object; returns the value. For a form
            that it does not have it returns ``decoder.plain(tree, path)``.

    Raises:
        CheckpointError: it is not such a tree; the error has the path.
    """

    def __init__(self, hook: Callable[[Any, Path, Decoder], Any] | None = None) -> None:
        self._hook = hook

    def __call__(self, tree: Any, path: Path = ()) -> Any:
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        return self.plain(tree, path) if self._hook is None else self._hook(tree, path, self)

    def plain(self, tree: Any, path: Path) -> Any:
        """Return the value of a tree in the forms above; its parts go through the hook."""
        if isinstance(tree, list):
            return self.items(tree, path)
        mark = mark_of(tree, path)
        if mark is None:
            return {key_of(key): self(item, (*path, key_of(key))) for key, item in tree.items()}
        # `Encoder` writes no mark beside other keys, and no unknown one: the file is damaged or of a newer version.
        if len(tree) > 1 or mark not in _FORMS:
            raise unreadable(path, f"{mark!r:.60} means nothing")
        parts, make = _FORMS[mark]
        given = parts(self, tree[mark], path)
        try:
            return make(given)
        # The tree comes from a file, so any value may have the wrong form: that is damage, not a fault here.
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise unreadable(path, f"{error!s:.200}") from None

    def items(self, trees: Any, path: Path) -> list[Any]:
        """Return the values of a list of trees."""
        if not isinstance(trees, list):
            raise unreadable(path, f"{trees!r:.60} must be a list")
        return [self(tree, (*path, number)) for number, tree in enumerate(trees)]

    def _pairs(self, trees: Any, path: Path) -> list[Any]:
        pairs = self.items(trees, path)
        if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
            raise unreadable(path, "it must be a list of pairs")
        return pairs

    def _itself(self, given: Any, path: Path) -> Any:
        return given


def mark_of(tree: Any, path: Path = ()) -> str | None:
    """Return the mark of an object of JSON; None of a plain one, and of what is not an object.

    >>> mark_of({"$tuple": []}), mark_of({"$$tuple": 3, "step": 1})
    ('$tuple', None)

    Raises:
        CheckpointError: it has several marks, or is not of JSON.
    """
    if type(tree) in (list, bool, int, float, str) or tree is None:
        return None
    if type(tree) is not dict or any(type(key) is not str for key in tree):
        raise unreadable(path, f"it is a {type(tree).__name__}, which JSON does not have")
    marks = [key for key in tree if key[:1] == "$" and key[:2] != "$$"]
    if len(marks) > 1:
        raise unreadable(path, f"it has the marks {', '.join(marks):.60}")
    return marks[0] if marks else None


def key_of(key: str) -> str:
    """Return the key of a dict that is written as this one."""
    return key[1:] if key.startswith("$$") else key


def display_keys(path: Path) -> str:
    """Return a path as errors show it: ``extensions > ema > shadow``."""
    return " > ".join(map(str, path)) or "the state"


def unsupported_value_error(path: Path, value: Any) -> CheckpointError:
    """Return the error about something that is not a state."""
    return CheckpointError(
        f"{display_keys(path)} is an object of type {class_name(value)}, which a checkpoint cannot hold",
        name=display_keys(path),
        cure="it holds dicts, lists, tuples, tensors, numpy arrays, numbers, texts, bytes, bool and None",
    )


def unreadable(path: Path, what: str) -> CheckpointError:
    """Return the error about a tree that ``ValueEncoder`` cannot have written."""
    return CheckpointError(f"{'.'.join(map(str, path)) or 'the top'}: {what}", name=".".join(map(str, path)))


def class_name(value: Any) -> str:
    """Return the name of the class of a value, with its module unless it is Python's own."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _float_of(text: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text]


# How to read each form: its parts, and how they become the value. `Encoder.plain` writes them.
_FORMS: Final[dict[str, tuple[Callable[[Decoder, Any, Path], Any], Callable[[Any], Any]]]] = {
    "$tuple": (Decoder.items, tuple),
    "$dict": (Decoder._pairs, dict),
    "$OrderedDict": (Decoder._pairs, OrderedDict),
    "$Counter": (Decoder._pairs, lambda pairs: Counter(dict(pairs))),
    "$int": (Decoder._itself, lambda text: int(text, 16)),
    "$float": (Decoder._itself, _float_of),
    "$bytes": (Decoder._itself, lambda text: base64.b64decode(text, validate=True)),
}
