"""The state of a training as JSON and tensors, and back: equal, types included.

A value that JSON has is written as it is. Every other one is an object with one key that begins with ``$``:

    {"$tensor": "optimizers.0.exp_avg"}     a tensor, by its name in the file beside
    {"$tuple": [...]}                       a tuple; {"$dict": [[key, value], ...]} has keys that are not all texts
    {"$float": "nan"}                       nan and infinities; {"$int": "0x..."} a number beyond 64 bits
    {"$bytes": "..."}                       in base64
    {"$array": ["<f4", [2, 3], "name"]}     a numpy array, as a tensor of bytes; {"$number": ["<f4", "hex"]} its scalars
"""

from __future__ import annotations

import base64
import math
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from train_manager.telling.errors import CheckpointError

if TYPE_CHECKING:  # manifests go through this file, and are read without a second for torch
    from torch import Tensor

DEEPEST = 100  # levels of containers; the limit also stops at a list that holds itself
ARRAY_KINDS = "biufcmMSU"  # kinds of numpy dtypes: no objects, which only a pickle could hold, and no records
# A file gives this text to np.dtype(), which accepts far more than the names of plain dtypes.
ARRAY_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")
# Subclasses of dict that torch puts into its states.
MAPPINGS: dict[type, str] = {OrderedDict: "$OrderedDict", Counter: "$Counter"}

Path = tuple[Any, ...]  # the keys that lead from the state to a value


def split(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a state as a tree that JSON can hold, and its tensors by names made of their paths.

    >>> import torch
    >>> tree, tensors = split({"step": 3, "betas": (0.9, 0.99), "shadow": {"weight": torch.ones(2)}})
    >>> tree
    {'step': 3, 'betas': {'$tuple': [0.9, 0.99]}, 'shadow': {'weight': {'$tensor': 'shadow.weight'}}}
    >>> list(tensors)
    ['shadow.weight']

    Args:
        state: dicts, lists, tuples, tensors, numpy arrays and numbers, str, bytes, int, float, bool and None.

    Raises:
        CheckpointError: something else is in it; the error has its path.
    """
    tensors: dict[str, Tensor] = {}
    return _plain(state, (), tensors), tensors


def join(tree: Any, tensors: Mapping[str, Tensor], label: str = "state.json") -> Any:
    """Return the state that ``split`` has taken apart.

    >>> join({"betas": {"$tuple": [0.9, 0.99]}}, {})
    {'betas': (0.9, 0.99)}

    Args:
        tree: the tree that ``split`` returned, read from JSON.
        tensors: by the names in the tree.
        label: the file's name in errors.

    Raises:
        CheckpointError: it is not such a tree, or a tensor is missing.
    """
    try:
        return _join(tree, tensors)
    except CheckpointError:
        raise
    # The tree comes from a file, so any of its values may have the wrong form: that is damage, not a fault here.
    except (ValueError, TypeError, KeyError, LookupError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{label} is damaged: {error!s:.200}", name=label) from None


def tensor_names(tree: Any) -> list[str]:
    """Return the names of the tensors that a tree asks for."""
    # A stack in place of recursion: the tree was not checked for its depth yet.
    found, left = [], [tree]
    while left:
        match left.pop():
            case {"$tensor": str(name)} | {"$array": [_, _, str(name)]}:
                found.append(name)
            case dict(items):
                left.extend(items.values())
            case list(items):
                left.extend(items)
    return found


def _plain(value: Any, path: Path, tensors: dict[str, Tensor]) -> Any:
    if len(path) > DEEPEST:
        raise CheckpointError(f"{display_keys(path[:5])} > ... is nested more than {DEEPEST} deep, or holds itself")
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
    if _is_tensor(value):
        return {"$tensor": _add(value, path, tensors)}
    if isinstance(value, np.ndarray | np.generic):
        return _plain_numpy(value, path, tensors)
    if kind is list:
        return [_plain(item, (*path, number), tensors) for number, item in enumerate(value)]
    if kind is tuple:
        return {"$tuple": [_plain(item, (*path, number), tensors) for number, item in enumerate(value)]}
    if kind is dict or kind in MAPPINGS:
        return _plain_dict(value, path, tensors)
    raise unsupported_value_error(path, value)


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    torch = sys.modules.get("torch")  # only a program that has imported torch can have a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _plain_dict(value: Mapping[Any, Any], path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for key in value:
        if type(key) not in (str, int, float, bool, type(None)):
            raise CheckpointError(
                f"{display_keys(path)} has a key of type {_name_of(key)}, which a checkpoint cannot hold"
            )
    # JSON would turn the key 1 into "1", so a dict with other keys than texts is a list of pairs.
    items = [(key, _plain(item, (*path, key), tensors)) for key, item in value.items()]
    if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return dict(items)
    return {MAPPINGS.get(type(value), "$dict"): [[_plain(key, path, tensors), item] for key, item in items]}


def _plain_numpy(value: np.ndarray[Any, Any] | np.generic, path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    # The exact type again: a masked array or a matrix is more than its values.
    if value.dtype.kind not in ARRAY_KINDS or type(value) not in (np.ndarray, value.dtype.type):
        raise unsupported_value_error(path, value)
    if isinstance(value, np.generic):
        return {"$number": [value.dtype.str, value.tobytes().hex()]}
    import torch

    # Stored as bytes, because the tensor file lacks dtypes such as dates and texts; the copy can be written to.
    content = torch.from_numpy(np.frombuffer(bytearray(value.tobytes()), np.uint8))
    return {"$array": [value.dtype.str, list(value.shape), _add(content, path, tensors)]}


def _add(tensor: Tensor, path: Path, tensors: dict[str, Tensor]) -> str:
    from train_manager.checkpoints.tensors import why_not

    if reason := why_not(tensor):
        raise CheckpointError(f"{display_keys(path)} {reason}, which a checkpoint cannot hold")
    # Dots are not escaped, so two paths may give one name: {"a": {"b": ...}, "a.b": ...}.
    plain = ".".join(map(str, path))
    name, number = plain, 1
    while name in tensors or name == "__metadata__":
        number += 1
        name = f"{plain}#{number}"
    tensors[name] = tensor
    return name


def _join(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_join(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    marks = [key for key in tree if key.startswith("$")]
    if not marks:
        return {key: _join(item, tensors) for key, item in tree.items()}
    # `split` never writes a "$" key beside others, nor an unknown one: the file is damaged or of a newer version.
    if len(tree) > 1 or marks[0] not in JOINERS:
        raise ValueError(f"{marks[0]!r:.60} means nothing")
    return JOINERS[marks[0]](tree[marks[0]], tensors)


def _join_items(items: Any, tensors: Mapping[str, Tensor]) -> list[tuple[Any, Any]]:
    return [(_join(key, tensors), _join(item, tensors)) for key, item in items]


def _join_array(given: Any, tensors: Mapping[str, Tensor]) -> np.ndarray[Any, Any]:
    dtype, shape, name = given
    # The view shares the memory of the tensor, which no other reader has.
    content: np.ndarray[Any, Any] = _tensor(name, tensors).numpy()
    return content.view(_dtype(dtype)).reshape(shape)


def _join_number(given: Any, tensors: Mapping[str, Tensor]) -> Any:
    dtype, content = given
    return np.frombuffer(bytes.fromhex(content), _dtype(dtype))[0]


def _join_float(given: Any, tensors: Mapping[str, Tensor]) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[given]


def _dtype(text: str) -> np.dtype[Any]:
    if not ARRAY_DTYPE.fullmatch(text):
        raise ValueError(f"{text!r:.60} is not a dtype")
    return np.dtype(text)


def _tensor(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if name not in tensors:
        raise ValueError(f"the tensor {name!r:.100} is missing")
    return tensors[name]


# How to read each "$" form; `_plain` writes them.
JOINERS: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "$tensor": _tensor,
    "$array": _join_array,
    "$number": _join_number,
    "$tuple": lambda items, tensors: tuple(_join(item, tensors) for item in items),
    "$dict": lambda items, tensors: dict(_join_items(items, tensors)),
    "$OrderedDict": lambda items, tensors: OrderedDict(_join_items(items, tensors)),
    "$Counter": lambda items, tensors: Counter(dict(_join_items(items, tensors))),
    "$int": lambda text, tensors: int(text, 16),
    "$float": _join_float,
    "$bytes": lambda text, tensors: base64.b64decode(text, validate=True),
}


def display_keys(path: Path) -> str:
    """Return a path as errors show it: ``extensions > ema > shadow``."""
    return " > ".join(map(str, path)) or "the state"


def unsupported_value_error(path: Path, value: Any) -> CheckpointError:
    """Return the error about something that is not a state."""
    return CheckpointError(
        f"{display_keys(path)} is an object of type {_name_of(value)}, which a checkpoint cannot hold",
        name=display_keys(path),
        cure="it holds dicts, lists, tuples, tensors, numpy arrays, numbers, texts, bytes, bool and None",
    )


def _name_of(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
