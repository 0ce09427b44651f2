"""Tensors in one file, in the safetensors format: the length of a header, the header in JSON, then the bytes.

Nothing in such a file can run. The format is https://github.com/huggingface/safetensors#format, and its library reads
the files written here. Tensors that share their memory are stored once, unless other programs must find each by its
name: ``__metadata__`` maps the second name to the first, as ``safetensors.torch.save_model`` does.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from train_manager.checkpoints.hashed_file import open_file
from train_manager.checkpoints.tensor_header import LARGEST_HEADER, read_header
from train_manager.telling.errors import CheckpointError

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
PAIRS = torch.complex128  # not in the format: stored as pairs of F64, which __metadata__ records
MOST_DIMENSIONS = 64  # the limit of torch
MOST = 1 << 48  # numbers in a tensor: more than any memory holds, so products of lengths stay small


Source = io.BufferedReader | io.BytesIO


class Writer(Protocol):
    """A file for tensors: a HashedFile, or one of the standard library."""

    def write(self, content: bytes | memoryview, /) -> object: ...


def why_not(tensor: Tensor) -> str:
    """Return why a tensor cannot be stored, or nothing if it can.

    >>> why_not(torch.ones(2).to_sparse())
    'is a tensor of layout torch.sparse_coo'
    """
    # A subclass (DTensor, a quantized one) has more than its values, and would come back as a plain tensor.
    if type(tensor) not in (Tensor, nn.Parameter):
        return f"is a {type(tensor).__name__}, which is more than a tensor"
    if tensor.is_meta:
        return "is a tensor on the meta device, which has no values"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return f"is a tensor of layout {tensor.layout}"
    if tensor.dtype not in NAMES and tensor.dtype is not PAIRS:
        return f"is a tensor of {tensor.dtype}"
    return ""


def memory_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return a key that two tensors share only if they are one tensor under two names; an empty tensor has none.

    >>> weight = torch.ones(2)
    >>> memory_of(weight) == memory_of(weight.detach()), memory_of(weight) == memory_of(weight[:1])
    (True, False)
    """
    if not tensor.numel():  # all empty tensors have the address 0
        return ()
    # The whole view counts: a slice begins at the same address, but is another tensor.
    place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
    return (*place, tensor.is_conj(), tensor.is_neg())  # lazy flags of torch: same memory, other values


def size_of(tensors: Mapping[str, Tensor], *, shares: bool = True) -> int:
    """Return how many bytes the tensors of a file take; with ``shares``, tensors of the same memory count once."""
    kept = _without_twins(tensors)[0] if shares else tensors
    return sum(tensor.nbytes for tensor in kept.values())


def write_tensors(file: Writer, tensors: Mapping[str, Tensor], *, shares: bool = True) -> None:
    """Write tensors by their names.

    >>> file = io.BytesIO()
    >>> write_tensors(file, {"weight": torch.ones(2, 3)})
    >>> read_tensors(file.getvalue())["weight"].shape
    torch.Size([2, 3])

    Args:
        file: an open file. Tensors on the CPU are written from their own memory, others are copied one at a time.
        tensors: strided ones, of any device.
        shares: write tensors that share their memory once; then other programs find only one of their names.

    Raises:
        CheckpointError: a tensor cannot be stored, such as a sparse one.
    """
    for name, tensor in tensors.items():
        if reason := why_not(tensor):
            raise CheckpointError(f"{name} {reason}", name=name)
        if name == "__metadata__":
            raise CheckpointError("a tensor cannot be called '__metadata__', which the format keeps", name=name)
    kept, twins = _without_twins(tensors) if shares else (dict(tensors), {})
    metadata = {**twins, **{name: str(PAIRS) for name, tensor in kept.items() if tensor.dtype is PAIRS}}
    # The widest dtypes come first, as in the safetensors library: then each tensor begins at a multiple of its width.
    ordered = sorted(kept.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, tensor in ordered:
        pair = tensor.dtype is PAIRS
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": "F64" if pair else NAMES[tensor.dtype],
            "shape": [*tensor.shape, 2] if pair else list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    # Padded to 8 bytes, so that the first tensor is aligned.
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise CheckpointError(f"{len(tensors)} tensors are too many for one file")
    file.write(struct.pack("<Q", len(text)) + text)
    # One tensor at a time: only one copy from a GPU is in memory, besides those that wait to be hashed.
    for _, tensor in ordered:
        if tensor.numel():
            file.write(_bytes_of(tensor))


def read_tensors(
    source: Path | bytes, names: Collection[str] | None = None, *, follow: bool = False
) -> dict[str, Tensor]:
    """Return the tensors of a file, each in memory of its own; names that stand for one tensor give that tensor.

    Args:
        source: a file, or its content.
        names: the names of the tensors to read; all by default.
        follow: whether a link to a file is followed.

    Raises:
        CheckpointError: it is not such a file, or its header and its size disagree.
    """
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source), "the content", names)
    with open_file(source, follow=follow) as file:
        return _read(file, os.fstat(file.fileno()).st_size, str(source), names)


class _Entry(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int  # bytes, counted from the end of the header
    end: int


def _read(file: Source, size: int, label: str, names: Collection[str] | None) -> dict[str, Tensor]:
    header, start = read_header(file, size, label)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(type(text) is str for text in metadata.values()):
        raise _damaged_error(label, "its __metadata__ is not an object of texts")
    entries = _check_entries([_entry(name, entry, label) for name, entry in header.items()], size - start, label)
    # A name in __metadata__ is a second name only if it leads to a tensor and is not one itself; other programs write
    # notes there.
    twins = {name: kept for name, kept in metadata.items() if kept in header and name not in header}
    # A second name asks for the tensor that it stands for.
    wanted = {twins.get(name, name) for name in (names if names is not None else [*header, *twins])}
    found = {}
    for entry in entries:
        if entry.name in wanted:
            # Only the wanted tensors are read, in the order of their bytes.
            file.seek(start + entry.start)
            tensor = _tensor(file, entry, label)
            found[entry.name] = torch.view_as_complex(tensor) if _is_pairs(entry, metadata) else tensor
    found.update({name: found[kept] for name, kept in twins.items() if names is None or name in names})
    return {name: found[name] for name in (names if names is not None else sorted(found)) if name in found}


def _entry(name: str, entry: Any, label: str) -> _Entry:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]} if (
            dtype in DTYPES
            and len(shape) <= MOST_DIMENSIONS
            and all(type(length) is int and 0 <= length <= MOST for length in shape)
            # Without lengths of 0: torch overflows at the shape [0, 2**48, 2**48], although it has no numbers.
            and math.prod(length for length in shape if length) <= MOST
        ):
            if math.prod(shape) * DTYPES[dtype].itemsize == end - start:
                return _Entry(name, DTYPES[dtype], tuple(shape), start, end)
            raise _damaged_error(label, f"shape and bytes of {name!r:.60} disagree")
    raise _damaged_error(label, f"the entry of {name!r:.60} is invalid: {entry!r:.60}")


def _check_entries(entries: list[_Entry], size: int, label: str) -> list[_Entry]:
    """Return entries in the order of their bytes, which follow each other without gaps and end with the file."""
    entries.sort(key=lambda entry: (entry.start, entry.end))
    end = 0
    for entry in entries:
        # A gap would hold bytes that nobody sees; an overlap would give two tensors one memory.
        if entry.start != end:
            raise _damaged_error(label, f"the bytes of {entry.name!r:.60} begin at {entry.start}, not at {end}")
        end = entry.end
    if end != size:
        raise _damaged_error(label, f"its header tells of {end} bytes of tensors, but {size} are there")
    return entries


def _tensor(file: Source, entry: _Entry, label: str) -> Tensor:
    # Each tensor gets memory of its own, filled without a second copy.
    content = torch.empty(entry.end - entry.start, dtype=torch.uint8)
    if content.numel() and file.readinto(content.numpy().data) != content.numel():
        raise _damaged_error(label, "it became shorter while it was read")
    if not content.numel():
        return torch.empty(entry.shape, dtype=entry.dtype)
    return content.view(entry.dtype).reshape(entry.shape)


def _is_pairs(entry: _Entry, metadata: Mapping[str, Any]) -> bool:
    return metadata.get(entry.name) == str(PAIRS) and entry.dtype is torch.float64 and entry.shape[-1:] == (2,)


def _without_twins(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, each under its first name only, and the second names with the first."""
    first: dict[object, str] = {}
    twins = {}
    for name, tensor in tensors.items():
        kept = first.setdefault(memory_of(tensor) or name, name)
        if kept != name:
            twins[name] = kept
    return {name: tensor for name, tensor in tensors.items() if name not in twins}, twins


def _bytes_of(tensor: Tensor) -> memoryview:
    # Lazy flags are applied and strides are removed, since only the plain bytes are written.
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.reshape(-1).view(torch.uint8).numpy().data


def _damaged_error(label: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{label} is damaged: {reason}", name=label)
