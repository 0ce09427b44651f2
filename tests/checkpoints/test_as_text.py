from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from train_manager.checkpoints.as_text import tensor_lines
from train_manager.checkpoints.tensors import content_of
from train_manager.errors import CheckpointError


def file_of(path: Path, header: object, content: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def test_the_tensors_of_a_file_are_told_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    tensors = {"b": torch.ones(2, 3, dtype=torch.bfloat16), "a": torch.ones(()), "c": torch.empty(0)}
    path.write_bytes(b"".join(content_of(tensors)))

    assert [*tensor_lines("tensors", path)] == [
        "tensors     3 tensors, 7 numbers",
        "  a  scalar  F32",
        "  b  2x3     BF16",
        "  c  0       F32",
    ]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ([], "invalid JSON in header: invalid type: sequence, expected struct HashMetadata"),
        ({"a": {}}, "invalid JSON in header: missing field `dtype`"),
        (
            {"a": {"shape": 3, "dtype": "F32", "data_offsets": [0, 4]}},
            "invalid JSON in header: invalid type: integer `3`, expected a sequence",
        ),
        (
            {"a": {"shape": [1], "dtype": "F32", "data_offsets": [0, 4]}},
            "incomplete metadata, file not fully covered",
        ),
    ],
)
def test_a_damaged_header_is_told(header: object, told: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "some.safetensors", header, b"123")

    with pytest.raises(CheckpointError) as damaged:
        list(tensor_lines("tensors", path))

    assert str(damaged.value).startswith(f"{path} is damaged: it is not a safetensors file, or is cut off ({told}")
