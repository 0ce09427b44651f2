"""What the pickle in a ``torch.save`` file would do, found without doing it.

A pickle is a program for a small machine with a stack. This file walks through it with stand-ins for all that it would
make, and refuses what a file of weights does not need: another name to import than the few below, another instruction,
a tensor that reaches outside of its storage, a storage of another size than the one in the file.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from train_manager.checkpoints.tensor_file import DTYPES
from train_manager.telling.errors import CheckpointError

STORAGES = {
    "torch FloatStorage": 4,
    "torch DoubleStorage": 8,
    "torch HalfStorage": 2,
    "torch BFloat16Storage": 2,
    "torch LongStorage": 8,
    "torch IntStorage": 4,
    "torch ShortStorage": 2,
    "torch CharStorage": 1,
    "torch ByteStorage": 1,
    "torch BoolStorage": 1,
    "torch ComplexFloatStorage": 8,
    "torch ComplexDoubleStorage": 16,
    "torch.storage UntypedStorage": 1,
}
WIDTHS = {str(dtype).replace(".", " "): dtype.itemsize for dtype in (*DTYPES.values(), torch.complex128)}
TENSOR, TENSOR_OF_DTYPE = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3"
CALLED = {"collections OrderedDict", "torch._utils _rebuild_parameter", TENSOR, TENSOR_OF_DTYPE}
ALLOWED = {*STORAGES, *WIDTHS, *CALLED}
MARK = object()


class Storage(NamedTuple):
    """Stands for the numbers of a tensor."""

    size: int
    width: int


def scan(content: bytes, records: Mapping[str, int], told: str) -> None:
    """Refuse a pickle that is more than weights.

    >>> import os, pickle
    >>> class Evil:
    ...     def __reduce__(self):
    ...         return os.system, ("rm -r /",)
    >>> scan(pickle.dumps(Evil(), protocol=2), {}, "weights.pt")
    Traceback (most recent call last):
    train_manager.CheckpointError: weights.pt would import posix.system, which is not a part of weights
      nothing of it was run; if you trust it: load it with torch, and save its state_dict() alone

    Args:
        content: the pickle.
        records: the sizes of the storages beside it, by their keys.
        told: the file's name in errors.

    Raises:
        CheckpointError: it would do anything but make dicts of tensors and plain values.
    """
    try:
        _walk(content, records)
    except _Refused as refusal:
        cure = "nothing of it was run; if you trust it: load it with torch, and save its state_dict() alone"
        raise CheckpointError(f"{told} {refusal}", name=told, cure=cure) from None
    except Exception as error:  # pickletools and the stack raise whatever comes of a pickle that is none
        raise CheckpointError(f"{told} is damaged: its pickle is invalid: {error!s:.100}", name=told) from None


class _Refused(Exception):
    pass


def _walk(content: bytes, records: Mapping[str, int]) -> None:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for code, given, _ in pickletools.genops(content):
        arg: Any = given
        match code.name:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                stack.append(MARK)
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_DICT" | "EMPTY_LIST" | "BINFLOAT":
                stack.append(None)
            case "EMPTY_TUPLE":
                stack.append(())
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(arg)
            case "GLOBAL":
                stack.append(_allowed(arg))
            case "BINPUT" | "LONG_BINPUT":
                memo[arg] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[arg])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(_popped(stack, int(code.name[-1]))))
            case "TUPLE":
                stack.append(tuple(_popped_to_mark(stack)))
            case "SETITEMS" | "APPENDS":
                _popped_to_mark(stack)
            case "SETITEM":
                _popped(stack, 2)
            case "APPEND" | "BUILD":
                _popped(stack, 1)
            case "BINPERSID":
                stack.append(_storage(stack.pop(), records))
            case "REDUCE":
                stack.append(_called(*_popped(stack, 2)))
            case other:
                raise _Refused(f"has the instruction {other}, which is not a part of weights")


def _popped(stack: list[Any], count: int) -> list[Any]:
    items = [stack.pop() for _ in range(count)]
    return items[::-1]


def _popped_to_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (item := stack.pop()) is not MARK:
        items.append(item)
    return items[::-1]


def _allowed(name: str) -> str:
    if name not in ALLOWED:
        raise _Refused(f"would import {name.replace(' ', '.')!s:.100}, which is not a part of weights")
    return name


def _storage(found: Any, records: Mapping[str, int]) -> Storage:
    match found:
        case ("storage", str(kind), str(key), str(), int(count)) if kind in STORAGES and key in records and count >= 0:
            if count * STORAGES[kind] == records[key]:
                return Storage(records[key], STORAGES[kind])
            raise _Refused(
                f"is damaged: the storage {key!r:.20} has {records[key]} bytes, not {count * STORAGES[kind]}"
            )
    raise _Refused(f"is damaged: it asks for the storage {found!r:.100}")


def _called(function: Any, args: Any) -> Any:
    """Return what stands for the result of a call, which is checked only if it makes a tensor."""
    if function not in CALLED:
        raise _Refused(f"would call {function!r:.60}, which is not a part of weights")
    match function, args:
        case (name, (Storage() as storage, int(offset), tuple(size), tuple(stride), *rest)) if name in (
            TENSOR,
            TENSOR_OF_DTYPE,
        ):
            width = WIDTHS[rest[2]] if name == TENSOR_OF_DTYPE else storage.width
            _require_inside(storage, offset, size, stride, width)
        case (name, _) if name in (TENSOR, TENSOR_OF_DTYPE):
            raise _Refused(f"is damaged: a tensor is made of {args!r:.60}")
    return None


def _require_inside(storage: Storage, offset: int, size: Sequence[int], stride: Sequence[int], width: int) -> None:
    if not all(type(number) is int and number >= 0 for number in (offset, *size, *stride)):
        raise _Refused(f"is damaged: a tensor has the shape {size!r:.60} and the strides {stride!r:.60}")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    # Strides of 0 would let a few bytes become any number of them, as soon as the tensor is copied.
    if math.prod(size) and (math.prod(size) * width > storage.size or (last + 1) * width > storage.size):
        raise _Refused(f"is damaged: a tensor of shape {size!r:.60} is larger than its storage of {storage.size} bytes")
