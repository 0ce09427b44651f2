"""The state of a training as JSON and tensors, and back: equal, types included.

What JSON has stands for itself. All else is an object with one key that begins with ``$``:

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

if TYPE_CHECKING:  # manifests are taken apart too, and are read without torch
    from torch import Tensor

DEEPEST = 100  # levels; also what ends a state that holds itself
ARRAY_KINDS = "biufcmMSU"  # no objects, which only a pickle could hold, and no records
ARRAY_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")
MAPPINGS: dict[type, str] = {OrderedDict: "$OrderedDict", Counter: "$Counter"}

Path = tuple[Any, ...]


def split(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a state as what JSON can hold, and its tensors by names made of their paths.

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


def join(tree: Any, tensors: Mapping[str, Tensor], told: str = "state.json") -> Any:
    """Return the state that ``split`` has taken apart.

    >>> join({"betas": {"$tuple": [0.9, 0.99]}}, {})
    {'betas': (0.9, 0.99)}

    Args:
        tree: what JSON held.
        tensors: by the names in the tree.
        told: the file's name in errors.

    Raises:
        CheckpointError: it is not such a tree, or a tensor is missing.
    """
    try:
        return _joined(tree, tensors)
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, LookupError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{told} is damaged: {error!s:.200}", name=told) from None


def tensor_names(tree: Any) -> list[str]:
    """Return the names of the tensors that a tree asks for."""
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
        raise CheckpointError(f"{shown_keys(path[:5])} > ... is nested more than {DEEPEST} deep, or holds itself")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < 1 << 63 else {"$int": hex(value)}
    if kind is float:
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
    raise refused(path, value)


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    torch = sys.modules.get("torch")  # a program that has a tensor has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def _plain_dict(value: Mapping[Any, Any], path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for key in value:
        if type(key) not in (str, int, float, bool, type(None)):
            raise CheckpointError(
                f"{shown_keys(path)} has a key of type {_name_of(key)}, which a checkpoint cannot hold"
            )
    items = [(key, _plain(item, (*path, key), tensors)) for key, item in value.items()]
    if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return dict(items)
    return {MAPPINGS.get(type(value), "$dict"): [[_plain(key, path, tensors), item] for key, item in items]}


def _plain_numpy(value: np.ndarray[Any, Any] | np.generic, path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if value.dtype.kind not in ARRAY_KINDS or type(value) not in (np.ndarray, value.dtype.type):
        raise refused(path, value)
    if isinstance(value, np.generic):
        return {"$number": [value.dtype.str, value.tobytes().hex()]}
    import torch

    content = torch.from_numpy(np.frombuffer(bytearray(value.tobytes()), np.uint8))
    return {"$array": [value.dtype.str, list(value.shape), _add(content, path, tensors)]}


def _add(tensor: Tensor, path: Path, tensors: dict[str, Tensor]) -> str:
    from train_manager.checkpoints.tensor_file import why_not

    if reason := why_not(tensor):
        raise CheckpointError(f"{shown_keys(path)} {reason}, which a checkpoint cannot hold")
    plain = ".".join(map(str, path))
    name, number = plain, 1
    while name in tensors or name == "__metadata__":  # {"a": {"b": ...}, "a.b": ...}
        number += 1
        name = f"{plain}#{number}"
    tensors[name] = tensor
    return name


def _joined(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_joined(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    marks = [key for key in tree if key.startswith("$")]
    if not marks:
        return {key: _joined(item, tensors) for key, item in tree.items()}
    if len(tree) > 1 or marks[0] not in JOINERS:
        raise ValueError(f"{marks[0]!r:.60} means nothing")
    return JOINERS[marks[0]](tree[marks[0]], tensors)


def _joined_items(items: Any, tensors: Mapping[str, Tensor]) -> list[tuple[Any, Any]]:
    return [(_joined(key, tensors), _joined(item, tensors)) for key, item in items]


def _joined_array(given: Any, tensors: Mapping[str, Tensor]) -> np.ndarray[Any, Any]:
    dtype, shape, name = given
    content: np.ndarray[Any, Any] = _tensor(name, tensors).numpy()
    return content.view(_dtype(dtype)).reshape(shape)


def _joined_number(given: Any, tensors: Mapping[str, Tensor]) -> Any:
    dtype, content = given
    return np.frombuffer(bytes.fromhex(content), _dtype(dtype))[0]


def _joined_float(given: Any, tensors: Mapping[str, Tensor]) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[given]


def _dtype(text: str) -> np.dtype[Any]:
    if not ARRAY_DTYPE.fullmatch(text):
        raise ValueError(f"{text!r:.60} is not a dtype")
    return np.dtype(text)


def _tensor(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if name not in tensors:
        raise ValueError(f"the tensor {name!r:.100} is missing")
    return tensors[name]


JOINERS: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "$tensor": _tensor,
    "$array": _joined_array,
    "$number": _joined_number,
    "$tuple": lambda items, tensors: tuple(_joined(item, tensors) for item in items),
    "$dict": lambda items, tensors: dict(_joined_items(items, tensors)),
    "$OrderedDict": lambda items, tensors: OrderedDict(_joined_items(items, tensors)),
    "$Counter": lambda items, tensors: Counter(dict(_joined_items(items, tensors))),
    "$int": lambda text, tensors: int(text, 16),
    "$float": _joined_float,
    "$bytes": lambda text, tensors: base64.b64decode(text, validate=True),
}


def shown_keys(path: Path) -> str:
    """Return a path as errors show it: ``extensions > ema > shadow``."""
    return " > ".join(map(str, path)) or "the state"


def refused(path: Path, value: Any) -> CheckpointError:
    """Return the error about something that is not a state."""
    return CheckpointError(
        f"{shown_keys(path)} is an object of type {_name_of(value)}, which a checkpoint cannot hold",
        name=shown_keys(path),
        cure="it holds dicts, lists, tuples, tensors, numpy arrays, numbers, texts, bytes, bool and None",
    )


def _name_of(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
