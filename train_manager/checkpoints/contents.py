"""The contents of a checkpoint, read without torch: the names, shapes and dtypes of tensors, and all other values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from train_manager.checkpoints.hashed_file import open_file
from train_manager.checkpoints.manifest import MODEL, TREE
from train_manager.checkpoints.tensor_header import read_header
from train_manager.files.json_text import json_of
from train_manager.telling.errors import CheckpointError


class Stored(NamedTuple):
    """A tensor in a file."""

    shape: tuple[int, ...]
    dtype: str  # as the safetensors format names it: F32, I64


def tensors_in(path: Path) -> dict[str, Stored]:
    """Return the tensors that the header of a ``.safetensors`` file describes.

    Raises:
        CheckpointError: it is not such a file, or it is cut off.
    """
    with open_file(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        # Only the header is read: a checkpoint of 10 GB is listed as fast as one of 10 kB.
        header, start = read_header(file, size, str(path))
    try:
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        found = {name: Stored(tuple(entry["shape"]), str(entry["dtype"])) for name, entry in entries.items()}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (AttributeError, LookupError, TypeError):
        # Valid JSON may still have any form: anybody may have written the file.
        raise CheckpointError(f"{path} is damaged: its header is invalid", name=path.name) from None
    # A file that a copy has cut off keeps its header whole.
    if end != size - start:
        reason = f"its header tells of {end} bytes of tensors, but {size - start} are there"
        raise CheckpointError(f"{path} is damaged: {reason}", name=path.name)
    return dict(sorted(found.items()))


def model_of(path: Path) -> dict[str, Stored]:
    """Return the tensors of the model of a checkpoint."""
    return tensors_in(path / MODEL)


def components_of(path: Path) -> dict[str, Any]:
    """Return the saved components of a checkpoint as JSON, with tensors and tuples in the form of ``state_tree``."""
    with open_file(path / TREE) as file:
        tree = json_of(file.read(), str(path / TREE))
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path} is damaged: {TREE} is not an object", name=path.name)
    return tree
