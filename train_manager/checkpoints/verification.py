"""What is checked before a checkpoint is read: that all of it is there, and as it was written. Needs no torch.

It stands apart from the reading, so that the command line can check checkpoints without a second for torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from train_manager.checkpoints import manifest
from train_manager.checkpoints.checkpoint_names import order_of
from train_manager.checkpoints.hashed_file import Gone, hash_of, opened
from train_manager.checkpoints.manifest import FILES, MANIFEST
from train_manager.telling.errors import CheckpointError

LOOKS: Final = 10
Found = TypeVar("Found")


def verify(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint after a check of each of its files.

    Args:
        path: the checkpoint's folder.

    Returns:
        ``format``, ``files``, ``step``, ``versions``, ``threads``, ``time``, and the facts it was written with.

    Raises:
        CheckpointError: it is not a checkpoint, or it is damaged; the error says which file, and how.
    """
    path = Path(path)
    with gone_or_damaged(path):
        found = read_manifest(path)
        for name in FILES:
            _require_size(path / name, found["files"][name]["size"])
        for name in FILES:
            if hash_of(path / name) != found["files"][name]["sha256"]:
                raise damaged(path, f"{name} has changed since it was written (its SHA-256 differs)")
    return found


@contextmanager
def gone_or_damaged(path: Path) -> Iterator[None]:
    """Let an error about a checkpoint that was deleted while it was read say so, and not that it is damaged."""
    try:
        yield
    except CheckpointError as error:
        if not isinstance(error, Gone) and not path.is_dir():
            raise Gone(f"{path} was deleted while it was read", name=path.name) from error
        raise


def looked_for_again(read: Callable[[], Found]) -> Found:
    """Call what finds checkpoints and reads them; again, if a run beside it has deleted one of them meanwhile.

    >>> looked_for_again(lambda: 3)
    3
    """
    for _ in range(LOOKS - 1):
        try:
            return read()
        except Gone:
            pass  # a run that saves is slower than this: the next look finds newer ones
    return read()


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, without a look at its other files.

    Raises:
        CheckpointError: it is missing or damaged, or of another step than the folder's name says.
    """
    with gone_or_damaged(path):
        return _read_manifest(path)


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise Gone(f"there is no checkpoint at {path}", name=path.name)
    if not os.path.lexists(path / MANIFEST):
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}", name=path.name)
    with opened(path / MANIFEST) as file:
        content = file.read(manifest.LARGEST + 1)
    if len(content) > manifest.LARGEST:
        raise damaged(path, f"{MANIFEST} is larger than any manifest")
    found = manifest.parsed(content, str(path / MANIFEST))
    claimed, step = order_of(path) or order_of(path.resolve()), found.get("step")
    if claimed is not None and step != claimed[0]:
        has = "no step" if step is None else f"step {step}"
        raise damaged(path, f"its name says step {claimed[0]}, but its {MANIFEST} says {has}")
    return found


def _require_size(path: Path, size: int) -> None:
    if not os.path.lexists(path):
        raise damaged(path.parent, f"{path.name} is missing")
    with opened(path) as file:
        found = os.fstat(file.fileno()).st_size
    if found != size:
        raise damaged(path.parent, f"{path.name} is empty" if not found else f"{path.name} has {found} of {size} bytes")


def damaged(path: Path, reason: str) -> CheckpointError:
    """Return the error about a checkpoint that is damaged."""
    return CheckpointError(f"{path} is damaged: {reason}", name=path.name)
