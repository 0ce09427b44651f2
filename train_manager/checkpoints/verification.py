"""The checks before a checkpoint is read: each file is there, and as it was written.

This file imports no torch, so that the command line checks checkpoints without the second that torch takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from train_manager.checkpoints import manifest
from train_manager.checkpoints.checkpoint_names import order_of, require_no_link
from train_manager.checkpoints.hashed_file import Gone, hash_of, open_file
from train_manager.checkpoints.manifest import FILES, MANIFEST
from train_manager.telling.errors import CheckpointError


def verify(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint after a check of each of its files.

    Args:
        path: the checkpoint's folder.

    Returns:
        ``format``, ``files``, ``step``, ``versions``, ``threads``, ``time``, and the facts of its writer.

    Raises:
        CheckpointError: it is not a checkpoint, or it is damaged; the error says which file, and how.
    """
    path = Path(path)
    with translate_gone_errors(path):
        found = verify_sizes(path)
        for name in FILES:
            require_hash(path / name, hash_of(path / name), found)
    return found


def verify_sizes(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint after a check that each of its files is there, with its size.

    The sizes cost nothing, and find a copy that was cut off without a hash of many GB.
    """
    found = read_manifest(path)
    for name in FILES:
        _require_size(path / name, found["files"][name]["size"])
    return found


def require_hash(path: Path, sha256: str, manifest: Mapping[str, Any]) -> None:
    """Refuse a file of a checkpoint whose SHA-256 is another one than its manifest has."""
    if sha256 != manifest["files"][path.name]["sha256"]:
        raise damaged_error(path.parent, f"{path.name} has changed since it was written (its SHA-256 differs)")


@contextmanager
def translate_gone_errors(path: Path) -> Iterator[None]:
    """Replace an error about a checkpoint that was deleted while it was read: it is gone, and not damaged."""
    try:
        yield
    except CheckpointError as error:
        # Files vanish one by one while a checkpoint is deleted, but its name goes first, by a rename.
        if not isinstance(error, Gone) and not path.is_dir():
            raise Gone(f"{path} was deleted while it was read", name=path.name) from error
        raise


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, without a check of its other files.

    Raises:
        CheckpointError: it is missing or damaged, or of another step than the folder's name says.
    """
    with translate_gone_errors(path):
        return _read_manifest(path)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise Gone(f"there is no checkpoint at {path}", name=path.name)
    require_no_link(path)
    if not os.path.lexists(path / MANIFEST):
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}", name=path.name)
    with open_file(path / MANIFEST) as file:
        # One byte more than allowed is read, which shows that the file is too large without a read of all of it.
        content = file.read(manifest.LARGEST + 1)
    if len(content) > manifest.LARGEST:
        raise damaged_error(path, f"{MANIFEST} is larger than any manifest")
    found = manifest.parse_manifest(content, str(path / MANIFEST))
    claimed, step = order_of(path), found.get("step")
    if claimed is not None and step != claimed[0]:
        has = "no step" if step is None else f"step {step}"
        raise damaged_error(path, f"its name says step {claimed[0]}, but its {MANIFEST} says {has}")
    return found


def _require_size(path: Path, size: int) -> None:
    if not os.path.lexists(path):
        raise damaged_error(path.parent, f"{path.name} is missing")
    with open_file(path) as file:
        found = os.fstat(file.fileno()).st_size
    if found != size:
        raise damaged_error(
            path.parent, f"{path.name} is empty" if not found else f"{path.name} has {found} of {size} bytes"
        )


def damaged_error(path: Path, reason: str) -> CheckpointError:
    """Return the error about a checkpoint that is damaged."""
    return CheckpointError(f"{path} is damaged: {reason}", name=path.name)


def is_damage(error: CheckpointError) -> bool:
    """Return whether an error of these checks says that a checkpoint is damaged.

    Else it cannot be read here and now: the system has refused it, or it has the format of another version. It may be
    sound, so it must not be renamed or deleted.
    """
    return not isinstance(error.__cause__, OSError | NotImplementedError)
