"""Tensors in one file, written and read by the library safetensors: https://github.com/huggingface/safetensors#format.

Nothing in such a file can run. What the format has no place for is a note in JSON, under ``train_manager`` in its
``__metadata__``: ``tied`` maps the second name of a tensor to the first, and ``complex128`` lists the tensors that are
stored as pairs of F64.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from train_manager.checkpoints.hashed_file import no_tensors_error, translate_os_errors
from train_manager.telling.errors import CheckpointError

DTYPES: Final = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.complex128,
)
"""What comes back as it was; the library also writes dtypes that it cannot read, such as float8_e8m0fnu."""

NOTE: Final = "train_manager"


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
    if tensor.dtype not in DTYPES:
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
    twins = _twins_of(tensors) if shares else {}
    return sum(tensor.nbytes for name, tensor in tensors.items() if name not in twins)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, shares: bool = True) -> None:
    """Write tensors by their names into a file.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "some.safetensors")
    >>> write_tensors(path, {"weight": torch.ones(2, 3)})
    >>> read_tensors(path.read_bytes(), path)["weight"].shape
    torch.Size([2, 3])

    Args:
        path: of the file, which gets the mode of its folder. Tensors on the CPU are written from their own memory;
            those on another device, and views, are copied before.
        tensors: strided ones, of any device.
        shares: write tensors that share their memory once; then other programs find only one of their names.

    Raises:
        CheckpointError: a tensor cannot be stored, such as a sparse one, or the disk cannot hold it.
    """
    for name, tensor in tensors.items():
        if reason := why_not(tensor):
            raise CheckpointError(f"{name} {reason}", name=name)
        if name == "__metadata__":
            raise CheckpointError("a tensor cannot be called '__metadata__', which the format keeps", name=name)
    twins = _twins_of(tensors) if shares else {}
    kept = {name: tensor for name, tensor in tensors.items() if name not in twins}
    pairs = [name for name, tensor in kept.items() if tensor.dtype is torch.complex128]
    # One entry: the library writes several in an order that differs from save to save, and with it the bytes.
    note = {NOTE: json.dumps({"tied": twins, "complex128": pairs})} if twins or pairs else None
    with translate_os_errors("write", path):
        try:
            save_file(_plain(kept), path, note)
        except (SafetensorError, UnicodeEncodeError) as error:
            raise _cause_of(error, path) from None
        # The library makes files that only their owner may read, whatever the umask says.
        os.chmod(path, path.parent.stat().st_mode & 0o666)


def read_tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, each in memory of its own; names that stand for one tensor give that tensor.

    Args:
        content: the bytes of the file. The library would map a file into memory: a tensor of it changes with the file.
        path: of the file, for errors.

    Raises:
        CheckpointError: it is not such a file, or its header and its size disagree.
    """
    try:
        found = load(content)
        twins, pairs = _noted(content, found)
        # A copy of each, taken in place of what the library gives: that memory is Python's. It cannot be resized, and
        # begins at other multiples than the memory of torch, on which the last bits of a product may depend.
        kept = {name: found.pop(name).clone() for name in sorted(found)}
        kept |= {name: torch.view_as_complex(kept[name]) for name in pairs & {*kept}}
    # RuntimeError: a shape that torch refuses; LookupError: a dtype that torch lacks; the others: a note of any form.
    except (SafetensorError, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise no_tensors_error(path, error) from None
    return kept | {name: kept[first] for name, first in twins.items()}


def _noted(content: bytes, found: Mapping[str, Tensor]) -> tuple[dict[str, str], set[str]]:
    """Return the second names of tensors with the first, and the names of those that are stored as pairs."""
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    note = json.loads(metadata.pop(NOTE, "{}"))
    # Other programs have the second names beside words of their own, as `safetensors.torch.save_model` writes them: a
    # name is a second name only if it leads to a tensor and is not one itself.
    noted = {**metadata, **note.get("tied", {})}
    twins = {name: first for name, first in noted.items() if first in found and name not in found}
    return twins, {*note.get("complex128", ())}


def _twins_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the second names of tensors, with the first name of each."""
    first: dict[object, str] = {}
    names = {name: first.setdefault(memory_of(tensor) or name, name) for name, tensor in tensors.items()}
    return {name: kept for name, kept in names.items() if kept != name}


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as the library takes them: on the CPU, contiguous, and each with memory of its own."""
    found, memories = {}, set()
    for name, tensor in tensors.items():
        # The library writes the bytes below a lazy flag, which are those of other values, without a word.
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if plain.dtype is torch.complex128:
            plain = torch.view_as_real(plain)
        # The library refuses memory that it has seen: tied weights in the file of a model, and slices of one tensor.
        memory = plain.untyped_storage().data_ptr()
        found[name] = plain.clone() if memory in memories else plain
        memories.add(memory)
    return found


def _cause_of(error: Exception, path: Path) -> Exception:
    """Return the error of the system behind an error of the library, which has its number in the text alone."""
    if number := re.search(r"\(os error (\d+)\)", str(error)):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    return CheckpointError(f"write failed at {path}: {error}", name=str(path))
