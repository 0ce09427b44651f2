"""A folder for a run that is only tried, and the bytes that the run writes there."""

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
"""Its name in ``train_dir``: always the same, so that a rehearsal removes the files of one that was killed."""

BESIDE_KEPT: Final = 2
"""Checkpoints on the disk beside those that ``keep`` counts: the best one, and the one that is being written."""

DiskUsage = Callable[[Path], Any]
"""``shutil.disk_usage``, or a function like it: its result has the free bytes as ``free``."""


@contextmanager
def scratch_folder(train_dir: Path, rank: int = 0) -> Iterator[Path]:
    """Give an empty folder of this process in ``train_dir``, and remove it and its parents that were made here."""
    made = [path for path in (train_dir, *train_dir.parents) if not path.exists()]
    folder = train_dir / (f"{FOLDER}-{rank}" if rank else FOLDER)
    try:
        if folder.exists():
            shutil.rmtree(folder)
        run = folder / "run"  # one level deeper, so that files written beside the train_dir are removed too
        run.mkdir(parents=True)
        yield run
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another program has written to one of these folders meanwhile
            for path in made:
                path.rmdir()


@final
class DiskWatch(Extension):
    """Asks for a checkpoint, and measures the bytes that a run of two epochs writes into a folder.

    Attributes:
        free: the bytes of the disk that were free before the run.
    """

    def __init__(self, folder: Path, disk_usage: DiskUsage) -> None:
        self._folder, self._before_last = folder, 0
        self.free: int = disk_usage(folder).free

    def pre_train(self, train_manager: TrainManager) -> None:
        train_manager.save_soon(at="end")  # a schedule such as every(1000) would save none in so few steps

    def pre_train_step_epoch(self) -> None:
        self._before_last = self._beside_checkpoints()  # at the beginning of the last epoch

    def needed(self, epochs: int, keep: int | None) -> int:
        """Return the bytes that a run will need at least.

        Args:
            epochs: how many epochs the run has.
            keep: the argument of ``Checkpoints``.
        """
        largest = max(map(_size_of, self.checkpoints()), default=0)
        count = epochs if keep is None else min(keep + BESIDE_KEPT, epochs + 1)
        rest = self._beside_checkpoints()
        # The files of the two rehearsed epochs, and the growth of the last one for each further epoch.
        return largest * count + rest + max(0, rest - self._before_last) * max(0, epochs - 2)

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints in the folder, oldest first."""
        return CheckpointFolder(self._folder / "checkpoints").checkpoints()

    def _beside_checkpoints(self) -> int:
        return _size_of(self._folder) - _size_of(self._folder / "checkpoints")


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
