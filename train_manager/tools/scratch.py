"""A folder for a training that is only tried, and how much it writes there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder

FOLDER: Final = ".rehearsal"
"""In ``train_dir``, and always the same: what a killed one has left, the next one removes."""

BESIDE_KEPT: Final = 2
"""Checkpoints that are there beside those that ``keep`` counts: the best one, and the one that is being written."""


@contextmanager
def scratch_folder(train_dir: Path | None) -> Iterator[Path]:
    """Give an empty folder in ``train_dir``, or elsewhere without one, and remove it with all that was made for it."""
    if train_dir is None:
        with TemporaryDirectory() as name:
            yield Path(name)
        return
    made = [path for path in (train_dir, *train_dir.parents) if not path.exists()]
    folder = train_dir / FOLDER
    try:
        if folder.exists():
            shutil.rmtree(folder)
        run = folder / "run"  # what lies beside the folder of a run belongs to the rehearsal too
        run.mkdir(parents=True)
        yield run
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another program has written there meanwhile
            for path in made:
                path.rmdir()


@final
@dataclass
class Written:
    """How many bytes lie in a folder.

    Attributes:
        checkpoint: of the largest checkpoint.
        rest: of all that is not a checkpoint.
    """

    checkpoint: int
    rest: int

    @classmethod
    def in_folder(cls, folder: Path) -> Written:
        """Return what lies there now."""
        checkpoints = folder / "checkpoints"
        each = [size_of(path) for path in CheckpointFolder(checkpoints).checkpoints()]
        return cls(max(each, default=0), size_of(folder) - size_of(checkpoints))


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def bytes_planned(after_one: Written, after_two: Written, epochs: int, keep: int | None) -> int:
    """Return how much a training of so many epochs will have on the disk, at least.

    >>> bytes_planned(Written(1000, 10), Written(1000, 15), epochs=12, keep=3)
    5065

    Args:
        after_one: what a rehearsal has written after its first epoch.
        after_two: the same after its second.
        epochs: how many are to be trained.
        keep: how many checkpoints stay; None for all.
    """
    checkpoints = epochs if keep is None else min(keep + BESIDE_KEPT, epochs + 1)
    growth = max(0, after_two.rest - after_one.rest)
    return after_two.checkpoint * checkpoints + after_two.rest + growth * max(0, epochs - 2)


DiskUsage = Callable[[Path], Any]
"""``shutil.disk_usage``, or a function like it: what it returns has the bytes that are ``free``."""
