"""The header of a file of tensors, read without torch: its length, and its text in JSON."""

from __future__ import annotations

import struct
from io import BufferedReader, BytesIO
from typing import Any, Final

from train_manager.files.strict_json import strict_json
from train_manager.telling.errors import CheckpointError

LARGEST_HEADER: Final = 25_000_000  # bytes: a quarter of the library's own limit, and room for 200,000 tensors


def read_header(file: BufferedReader | BytesIO, size: int, told: str) -> tuple[dict[str, Any], int]:
    """Return the header of a ``.safetensors`` file, and where the bytes of its tensors begin.

    Args:
        file: at its start.
        size: of the file, in bytes.
        told: the file's name in errors.

    Raises:
        CheckpointError: it is not such a file, or it is cut off.
    """
    length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
    if length > min(size - 8, LARGEST_HEADER):
        raise CheckpointError(f"{told} is damaged: it is not a safetensors file, or is cut off", name=told)
    header = strict_json(file.read(length), told)
    if not isinstance(header, dict):
        raise CheckpointError(f"{told} is damaged: its header is not an object", name=told)
    return header, 8 + length
