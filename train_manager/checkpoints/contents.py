"""The contents of a checkpoint, read without torch: the names, shapes and dtypes of tensors, and all other values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from train_manager.checkpoints.hashed_file import no_tensors_error, open_file
from train_manager.checkpoints.manifest import MODEL, TREE
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
    with open_file(path, follow=True):  # the library would wait for a pipe in the place of the file
        try:
            # Only the header is read: a checkpoint of 10 GB is listed as fast as one of 10 kB.
            with safe_open(path, framework="numpy") as file:
                entries = {name: file.get_slice(name) for name in sorted(file.keys())}
                return {name: Stored(tuple(one.get_shape()), one.get_dtype()) for name, one in entries.items()}
        except SafetensorError as error:
            raise no_tensors_error(path, error) from None


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
