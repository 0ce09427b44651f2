"""A folder for a training that is only tried, and how much it writes there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.core.extension import Extension
from train_manager.manager import TrainManager

FOLDER: Final = ".rehearsal"
"""In ``train_dir``, and always the same: what a killed one has left, the next one removes."""

BESIDE_KEPT: Final = 2
"""Checkpoints that are there beside those that ``keep`` counts: the best one, and the one that is being written."""

DiskUsage = Callable[[Path], Any]
"""``shutil.disk_usage``, or a function like it: what it returns has the bytes that are ``free``."""


@contextmanager
def scratch_folder(train_dir: Path) -> Iterator[Path]:
    """Give an empty folder in ``train_dir``, and remove it with all that was made for it."""
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
class DiskWatch(Extension):
    """Asks for a checkpoint, and measures what a training of two epochs writes into a folder.

    Attributes:
        free: the bytes of the disk that were free before it.
    """

    def __init__(self, folder: Path, disk_usage: DiskUsage) -> None:
        self._folder, self._before_last = folder, 0
        self.free: int = disk_usage(folder).free

    def pre_train(self, train_manager: TrainManager) -> None:
        train_manager.save_soon(at="end")  # one that is saved now and then is not due in so few steps

    def pre_train_step_epoch(self) -> None:
        self._before_last = self._beside_checkpoints()

    def needed(self, epochs: int, keep: int | None) -> int:
        """Return the bytes that a training of so many epochs will write at least; ``keep`` of ``Checkpoints``."""
        largest = max(map(_size_of, self.checkpoints()), default=0)
        count = epochs if keep is None else min(keep + BESIDE_KEPT, epochs + 1)
        rest = self._beside_checkpoints()
        return largest * count + rest + max(0, rest - self._before_last) * max(0, epochs - 2)

    def checkpoints(self) -> list[Path]:
        """Return those that are there, oldest first."""
        return CheckpointFolder(self._folder / "checkpoints").checkpoints()

    def _beside_checkpoints(self) -> int:
        return _size_of(self._folder) - _size_of(self._folder / "checkpoints")


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
