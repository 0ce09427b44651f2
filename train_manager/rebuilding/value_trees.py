"""Values as they are at the time of a call, in the form of ``record_tree``. The values themselves are not kept.

A value that cannot be written is not an error: the reason is written in its place. A list or a set with such a value
cannot be rebuilt as a whole, while the other arguments of an object, and the other keys of a dict, can.

What looks like a secret is not written, by its name or by its content. A dict that is named as a key or a token may
describe a module of a model, ``{"token": {"use": "Linear", "from": "trunk"}}``: it is written unless a value in it
looks like a secret. A dict that is named as a password is left out in any case.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from train_manager.files.json_values import DEEPEST, Path, ValueEncoder
from train_manager.files.secrets import looks_secret, may_have_entries
from train_manager.rebuilding.lambdas import lambda_text
from train_manager.rebuilding.record_tree import DESCRIBED, NOT_REBUILDABLE, Tree
from train_manager.rebuilding.registry import is_recorded, name_of, written_name
from train_manager.rebuilding.signatures import arguments_by_name, signature_of
from train_manager.telling.errors import CheckpointError
from train_manager.telling.showing import cut

RECORD: Final = "_recorded_arguments"
"""The attribute of an object that holds its record: copies and pickles have it too, and it dies with the object.

Two places of a tree with the same record are the same object, because each object gets a record of its own.
"""

LARGEST: Final = 100_000
"""Items of a list, or characters of a text, that is written as an argument; a larger one is data."""

LONGEST: Final = 400  # characters of a description
SECRET: Final = "what looks like a secret"

_PLAIN: Final = (type(None), bool, int, float, str, list, tuple)
_DICTS: Final = (dict, OrderedDict, Counter)


def tree_of(value: Any, name: str = "") -> Tree:
    """Return the tree of a value, with the reason in the place of a value that cannot be written.

    >>> tree_of((1, float("inf"))), tree_of(lambda: 1)
    ({'$tuple': [1, {'$float': 'inf'}]}, {'$not_rebuildable': 'a lambda', 'described': 'lambda: 1'})
    """
    return ValueEncoder(_written)(value, (name,))


def unwritten(why: str, value: Any = None) -> Tree:
    """Return the tree of a value that is not written: the reason, and what it is if that can be said in short."""
    try:
        text = _description(value)
    except Exception:  # a user's layer may raise anything as it describes itself
        text = ""
    return {NOT_REBUILDABLE: cut(why, 200)} | ({DESCRIBED: cut(text, LONGEST)} if text else {})


def trees_of(values: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the trees of the arguments of one call, by name."""
    return {name: tree_of(value, name) for name, value in values.items()}


class _NotWritten(Exception):
    """A value cannot be written; the text is the reason. Raised and caught in this file only."""


def _written(value: Any, path: Path, encoder: ValueEncoder) -> Tree:
    """Return the tree of a value: the hook of the encoder."""
    # Only an argument and an entry of a dict have names. Without an item, a list would be another list.
    if type(path[-1]) is not str:
        return _whole(value, path, encoder)
    try:
        return _whole(value, path, encoder)
    except _NotWritten as why:
        return unwritten(str(why), None if str(why) == SECRET else value)
    except CheckpointError:
        return {NOT_REBUILDABLE: f"what is nested more than {DEEPEST} deep, or contains itself"}
    except Exception as error:  # a user's class may raise anything in its repr, == or iteration
        return {NOT_REBUILDABLE: cut(f"a {type(value).__name__}, whose look-up raised {type(error).__name__}", 200)}


def _whole(value: Any, path: Path, encoder: ValueEncoder) -> Tree:
    """Return the tree of a value.

    Raises:
        _NotWritten: the value, or a value inside it, cannot be written.
    """
    if _is_hidden(path[-1] if type(path[-1]) is str else "", value):
        raise _NotWritten(SECRET)
    kind = type(value)
    if (kind is str or kind in _DICTS or kind in (list, tuple, set, frozenset)) and len(value) > LARGEST:
        raise _NotWritten(f"a text of {len(value)} characters" if kind is str else f"more than {LARGEST} values")
    if kind in _DICTS and any(_is_hidden("", key) for key in value):
        raise _NotWritten(SECRET)
    if kind in _PLAIN or kind in _DICTS:
        return encoder.plain(value, path)
    if kind in (set, frozenset):
        # The order of a set differs from process to process.
        return {f"${kind.__name__}": sorted(encoder.items(value, path), key=repr)}
    # The record itself, not a copy: `as_written` recognizes a shared object by it.
    record = getattr(value, "__dict__", {}).get(RECORD)
    return _other(value, path, encoder) if record is None else record


def _other(value: Any, path: Path, encoder: ValueEncoder) -> Tree:
    if isinstance(value, Enum):
        return _enum(value)
    if isinstance(value, PurePath):
        return {"$path": str(value)}
    if isinstance(value, partial):
        return _partial(value, path, encoder)
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return {"$callable": _registered(value)}
    fields = getattr(type(value), "_fields", None)
    if isinstance(value, tuple) and fields is not None and name_of(type(value)) is not None:
        return _object(value, dict(zip(fields, value, strict=True)), path, encoder)
    module = type(value).__module__.partition(".")[0]
    if module == "omegaconf":  # a DictConfig is not a dict
        return encoder(dict(value.items()) if isinstance(value, Mapping) else list(value), path)
    if module in ("torch", "numpy"):
        return _torch(value, path, encoder)
    raise _NotWritten(_described(value))


def _object(value: Any, arguments: Mapping[str, Any], path: Path, encoder: ValueEncoder) -> Tree:
    trees = {name: encoder(item, (*path, name)) for name, item in arguments.items()}
    return {"$object": name_of(type(value)), "arguments": trees}


def _partial(value: partial[Any], path: Path, encoder: ValueEncoder) -> Tree:
    name, signature = _registered(value.func), signature_of(value.func)
    if signature is None and value.args:
        raise _NotWritten(f"a partial of {name}, with arguments by position that have no names")
    arguments: Mapping[str, Any] = value.keywords
    if signature is not None:
        arguments = arguments_by_name(signature.bind_partial(*value.args, **value.keywords))
    return {"$callable": name, "arguments": {name: encoder(item, (*path, name)) for name, item in arguments.items()}}


def _torch(value: Any, path: Path, encoder: ValueEncoder) -> Tree:
    from train_manager.rebuilding.torch_values import arguments_of, number_of, tree_of_value  # after torch itself

    if (number := number_of(value)) is not None:
        return encoder(number, path)
    if (tree := tree_of_value(value)) is not None:
        return tree
    arguments = arguments_of(value)
    if arguments is None:
        raise _NotWritten(_described(value))
    return _object(value, arguments, path, encoder)


def _is_hidden(name: str, value: Any) -> bool:
    """Return whether a value must not be written, as it looks like a secret."""
    if type(value) is dict and may_have_entries(name):
        return any(_is_hidden(str(key), one) or _is_hidden("", key) for key, one in _entries(value))
    return looks_secret(name, value)


def _entries(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of a dict, and of the dicts and lists in it."""
    pairs = value.items() if isinstance(value, dict) else (("", one) for one in value)
    for key, one in pairs:
        yield key, one
        if isinstance(one, dict | list | tuple | set | frozenset):
            yield from _entries(one)


def _enum(value: Enum) -> Tree:
    name = name_of(type(value))
    if name is None or type(value).__members__.get(str(value.name)) is not value:
        raise _NotWritten(f"a {type(value).__name__}, an enum that is not recorded")
    return {"$enum": [name, value.name]}


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


def _description(value: Any) -> str:
    """Return what a value is, if its class has a short form: its source, its layers, or its arrays; else nothing."""
    kind = type(value)
    if kind is FunctionType and value.__name__ == "<lambda>":
        return lambda_text(value)
    room = kind.__module__
    if room.startswith("train_manager.") and hasattr(kind, "described"):
        return str(value.described())
    if room.startswith("torch.nn."):
        from train_manager.rebuilding.torch_values import layers_text  # after torch itself

        return layers_text(value)
    return ""
