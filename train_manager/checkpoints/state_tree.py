"""The state of a training as JSON and tensors, and back: equal, types included.

To the forms of ``files/json_values`` a state adds those of tensors and arrays:

    {"$tensor": "optimizers.0.exp_avg"}     a tensor, by its name in the file beside
    {"$array": ["<f4", [2, 3], "name"]}     a numpy array, as a tensor of bytes; {"$number": ["<f4", "hex"]} its scalars
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from train_manager.files.json_values import (
    MAPPINGS,
    Decoder,
    Path,
    ValueEncoder,
    class_name,
    display_keys,
    unreadable,
    unsupported_value_error,
)
from train_manager.telling.errors import CheckpointError

if TYPE_CHECKING:  # manifests go through this file, and are read without a second for torch
    from torch import Tensor

ARRAY_KINDS = "biufcmMSU"  # kinds of numpy dtypes: no objects, which only a pickle could hold, and no records
# A file gives this text to np.dtype(), which accepts far more than the names of plain dtypes.
ARRAY_DTYPE = re.compile(r"[<>|][biufcmMSU]\d+(\[\w+\])?")


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

    def written(value: Any, path: Path, encoder: ValueEncoder) -> Any:
        if _is_tensor(value):
            return {"$tensor": _add(value, path, tensors)}
        if isinstance(value, np.ndarray | np.generic):
            return _numpy(value, path, tensors)
        if type(value) in MAPPINGS:
            _require_plain_keys(value, path)
        return encoder.plain(value, path)

    return ValueEncoder(written)(state), tensors


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

    def read(tree: Any, path: Path, decoder: Decoder) -> Any:
        form = _FORMS.get(next(iter(tree))) if len(tree) == 1 and type(tree) is dict else None
        if form is None:
            return decoder.plain(tree, path)
        try:
            return form(next(iter(tree.values())), tensors)
        except (ValueError, TypeError, LookupError) as error:
            raise unreadable(path, f"{error!s:.200}") from None

    try:
        return Decoder(read)(tree)
    except (CheckpointError, RecursionError) as error:
        raise CheckpointError(f"{label} is damaged: {getattr(error, 'what', error)}", name=label) from None


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


def _is_tensor(value: Any) -> TypeGuard[Tensor]:
    torch = sys.modules.get("torch")  # only a program that has imported torch can have a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _require_plain_keys(value: Mapping[Any, Any], path: Path) -> None:
    for key in value:
        if type(key) not in (str, int, float, bool, type(None)):
            what = f"{display_keys(path)} has a key of type {class_name(key)}, which a checkpoint cannot hold"
            raise CheckpointError(what, name=display_keys(path))


def _numpy(value: np.ndarray[Any, Any] | np.generic, path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
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


def _tensor(name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if name not in tensors:
        raise ValueError(f"the tensor {name!r:.100} is missing")
    return tensors[name]


def _array(given: Any, tensors: Mapping[str, Tensor]) -> np.ndarray[Any, Any]:
    dtype, shape, name = given
    # The view shares the memory of the tensor, which no other reader has.
    content: np.ndarray[Any, Any] = _tensor(name, tensors).numpy()
    return content.view(_dtype(dtype)).reshape(shape)


def _number(given: Any, tensors: Mapping[str, Tensor]) -> Any:
    dtype, content = given
    return np.frombuffer(bytes.fromhex(content), _dtype(dtype))[0]


def _dtype(text: str) -> np.dtype[Any]:
    if not ARRAY_DTYPE.fullmatch(text):
        raise ValueError(f"{text!r:.60} is not a dtype")
    return np.dtype(text)


# How to read each form that `split` adds.
_FORMS: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "$tensor": _tensor,
    "$array": _array,
    "$number": _number,
}
