"""The file of tensors, in the format of the library safetensors: https://github.com/huggingface/safetensors#format.

Nothing in such a file can run. What the format has no place for is a note in JSON, under ``train_manager`` in its
``__metadata__``: ``tied`` maps the second name of a tensor to the first, and ``complex128`` lists the tensors that are
stored as pairs of F64. The library reads the files. Their bytes are made here, because its ``save_file`` would have to
end before the hash of the file can begin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from train_manager.checkpoints.hashed_file import no_tensors_error
from train_manager.telling.errors import CheckpointError

DTYPES: Final = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex128: "F64",  # as pairs
}
"""What the library can read, and what the format calls it."""

NOTE: Final = "train_manager"
LARGEST_HEADER: Final = 100_000_000  # bytes; the library refuses a file with a longer one


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


def content_of(tensors: Mapping[str, Tensor], *, shares: bool = True) -> list[memoryview]:
    """Return the bytes of a file with tensors by their names: its header, then the memory of each tensor.

    >>> content = b"".join(content_of({"weight": torch.ones(2, 3)}))
    >>> read_tensors(content, Path("some.safetensors"))["weight"].shape
    torch.Size([2, 3])

    Args:
        tensors: those for which ``why_not`` has no reason. Those on the CPU are not copied, except views and memory
            that other processes can write to.
        shares: tensors of the same memory are in the file once; then other programs find only one of their names.

    Raises:
        CheckpointError: the format cannot hold the name of a tensor, or all names.
    """
    if (name := "__metadata__") in tensors:
        raise CheckpointError(f"a tensor cannot be called {name!r}, which the format keeps", name=name)
    twins = _twins_of(tensors) if shares else {}
    # The largest numbers first, so that each tensor begins at a multiple of the size of its numbers.
    names = sorted(tensors.keys() - twins.keys(), key=lambda name: (-tensors[name].element_size(), name))
    pairs = [name for name in names if tensors[name].dtype is torch.complex128]
    note = json.dumps({"tied": twins, "complex128": pairs}) if twins or pairs else ""
    kept = {name: _plain(tensors[name]) for name in names}
    return [memoryview(_header_of(kept, note)), *map(_memory_of, kept.values())]


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


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor as the file has it: on the CPU, contiguous, and of a dtype of the format."""
    # Below a lazy flag of torch are the bytes of other values.
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.is_shared():  # a worker that counts there while the file is written would make its hash a wrong one
        plain = plain.clone()
    return torch.view_as_real(plain) if plain.dtype is torch.complex128 else plain


def _header_of(tensors: Mapping[str, Tensor], note: str) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {NOTE: note}} if note else {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {"dtype": DTYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
    try:
        text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"the name of a tensor is not a text: {error}", name=error.object) from None
    if len(text) > LARGEST_HEADER:
        raise CheckpointError(
            f"the names of the tensors take {len(text) / 1e6:.0f} MB, which the library does not read"
        )
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _memory_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
