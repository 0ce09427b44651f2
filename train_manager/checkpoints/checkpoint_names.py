"""The names of checkpoints, and the folder of a training's checkpoints.

A name holds the step, and a number if that step was saved before. The order comes from the names alone: clocks of
different machines disagree.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from train_manager.checkpoints.manifest import MANIFEST
from train_manager.telling.errors import CheckpointError

# Twelve digits, so that `ls` sorts by step; a larger step has more.
_NAME = re.compile(r"step-([0-9]{12,})(?:-([0-9]+))?")


def name_of(step: int) -> str:
    """Return the name of the first checkpoint of a step.

    >>> name_of(120)
    'step-000000000120'
    """
    return f"step-{step:012d}"


def order_of(path: Path) -> tuple[int, int] | None:
    """Return the key by which checkpoints are sorted: the step and its number; None if it is another name.

    >>> order_of(Path("step-000000000120-2")), order_of(Path("step-120.old"))
    ((120, 2), None)
    """
    found = _NAME.fullmatch(path.name)
    # The first checkpoint of a step has no number in its name.
    return None if found is None else (int(found[1]), int(found[2] or 1))


def step_of(path: Path) -> int:
    """Return the step of a checkpoint, from its name."""
    order = order_of(path)
    assert order is not None, path
    return order[0]


def is_checkpoint(path: Path) -> bool:
    """Return whether a path is one checkpoint, by its name or its manifest, and not a folder of several."""
    return order_of(path) is not None or (path / MANIFEST).exists()


def checkpoints_in(folder: Path) -> list[Path]:
    """Return all checkpoints in a folder, oldest first, by their names alone: no file is read, and no clock.

    Raises:
        CheckpointError: something else is in the place of the folder, or a link in that of a checkpoint.
    """
    try:
        with os.scandir(folder) as entries:
            # scandir knows which entries are folders without a system call per entry.
            found = [(order, entry) for entry in entries if (order := order_of(Path(entry.name))) and entry.is_dir()]
    except FileNotFoundError:
        return []  # the first write makes the folder
    except NotADirectoryError as error:
        cure = "move it away, or give another train_dir"
        raise CheckpointError(f"{folder} is to hold checkpoints, but is not a folder", cure=cure) from error
    for entry in [entry for _, entry in found if entry.is_symlink()]:
        require_no_link(Path(entry.path))
    return [Path(entry.path) for _, entry in sorted(found, key=lambda pair: pair[0])]


def require_no_link(path: Path) -> None:
    """Refuse a link in the place of a checkpoint."""
    # A move or a deletion would take the link for the checkpoint, or the checkpoint of another training for the link.
    if path.is_symlink():
        cure = f"give the checkpoint itself, {path.resolve()}, and move the link away"
        raise CheckpointError(f"{path} is a link, and not a checkpoint", name=path.name, cure=cure)


def named_checkpoints(path: Path) -> list[Path]:
    """Return the checkpoints of a ``train_dir``, of its folder ``checkpoints``, or a checkpoint itself; newest last.

    Raises:
        CheckpointError: the path does not exist, or has no checkpoint.
    """
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}", name=str(path))
    # A user may have renamed a checkpoint, so its manifest counts too.
    if path.is_dir() and is_checkpoint(path):
        return [path]
    found = checkpoints_in(folder_in(path)) if path.is_dir() else []
    if not found:
        cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
        raise CheckpointError(f"there is no checkpoint in {path}", name=str(path), cure=cure)
    return found


def folder_in(path: Path) -> Path:
    """Return the folder of checkpoints of a ``train_dir``, or the path itself."""
    return path / "checkpoints" if (path / "checkpoints").is_dir() else path
