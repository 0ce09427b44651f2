"""The header of a file of tensors, read without torch: its length, and its text in JSON."""

from __future__ import annotations

import struct
from io import BufferedReader, BytesIO
from typing import Any, Final

from train_manager.files.json_text import json_of
from train_manager.telling.errors import CheckpointError

LARGEST_HEADER: Final = 25_000_000  # bytes: a quarter of the limit of safetensors; room for 200,000 tensors


def read_header(file: BufferedReader | BytesIO, size: int, label: str) -> tuple[dict[str, Any], int]:
    """Return the header of a ``.safetensors`` file, and where the bytes of its tensors begin.

    Args:
        file: an open file, at its start.
        size: the length of the file, in bytes.
        label: the file's name in errors.

    Raises:
        CheckpointError: it is not such a file, or it is cut off.
    """
    # The first 8 bytes are the length of the header. It is checked before so many bytes are read into memory.
    length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
    if length > min(size - 8, LARGEST_HEADER):
        raise CheckpointError(f"{label} is damaged: it is not a safetensors file, or is cut off", name=label)
    header = json_of(file.read(length), label)
    if not isinstance(header, dict):
        raise CheckpointError(f"{label} is damaged: its header is not an object", name=label)
    return header, 8 + length
