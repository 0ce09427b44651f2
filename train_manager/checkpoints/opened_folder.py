"""The folder of checkpoints of a training that runs: which one it resumes from, and the lock under which it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

from train_manager.checkpoints.base import Base
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.left_out import Numbers
from train_manager.checkpoints.mirror import Mirror
from train_manager.files.lock import WriterLock
from train_manager.telling.errors import CheckpointError, InputError


@final
class OpenedFolder:
    """The checkpoints of a training in one ``train_dir``, and the lock that keeps others from writing there.

    Attributes:
        given_dir: the ``train_dir`` as it was given.
        folder: the checkpoints.
        mirror: the second folder of the checkpoints; None if there is none.
        lock: of the ``train_dir``; it is taken before the first write.
        is_new: until a run has passed ``load_checkpoint``.
        is_storable: the state was found to fit into a checkpoint.
        numbers: numbers that no checkpoint holds, as the first run began.
        rows: the digests of the training data, as the first run began.
        loaded: the checkpoint that was loaded, until one is written after it.
        base: the tensors of the model as the training began, if checkpoints leave some out; None before.
    """

    def __init__(self, train_dir: Path, mirror: Path | None = None) -> None:
        # Absolute, because the program may change its working directory before a further run.
        self.given_dir, train_dir = train_dir, train_dir.absolute()
        self.lock, self.folder = WriterLock(train_dir), CheckpointFolder(train_dir / "checkpoints")
        if mirror is not None and mirror.resolve() == train_dir.resolve():
            cure = "give another folder, on another disk if there is one"
            raise InputError(f"mirror is train_dir itself, {mirror}", name="mirror", asked_by="Checkpoints", cure=cure)
        self.mirror = None if mirror is None else Mirror(mirror.absolute(), self.folder)
        self.is_new = True
        self.is_storable = False
        self.numbers: Numbers = {}
        self.rows: dict[str, str] = {}
        self.loaded: Path | None = None
        self.base: Base | None = None

    def to_load(self, resume: bool | str, at: str | int | os.PathLike[str], mode: str) -> Path | None:
        """Return the checkpoint to resume from, by the arguments of ``Checkpoints``; None to begin anew.

        Raises:
            CheckpointError: it is not there or damaged; or there are checkpoints that ``resume`` does not allow to use.
        """
        folder = self.folder
        # A train_dir that was lost, as with its disk, resumes from the copies.
        if not folder.checkpoints() and self.mirror is not None and self.mirror.has_some():
            folder = self.mirror.folder
        names = [path.name for path in folder.checkpoints()]
        if resume is not True:
            if names:
                raise _has_checkpoints(folder, names)
            return None
        if not isinstance(at, int) and at not in ("last", "best"):
            # `at` may be a path of another training, from which this one begins. Once this training has checkpoints of
            # its own, it resumes from its last one. A path that does not exist is left to `find`, which raises.
            is_another = Path(at).exists() and not folder.has(at)
            return folder.find("last" if names and is_another else at, mode=mode)
        return folder.find(at, mode=mode) if names or isinstance(at, int) else None

    def begin_to_write(self) -> None:
        """Take the lock, clean up after other processes, and set aside checkpoints later than the loaded one."""
        if not self.lock.is_held:
            self.lock.acquire()
            self.folder.clean_up(self.lock)
            if self.mirror is not None:
                self.mirror.begin()
        # Not as the checkpoint is loaded: a program that only evaluates leaves the later checkpoints where they are.
        loaded, self.loaded = self.loaded, None
        if loaded is not None and loaded.parent == self.folder.path:
            self.folder.set_aside_after(loaded)

    def close(self) -> None:
        """Free the locks, after the mirror has what it was asked for."""
        try:
            if self.mirror is not None:
                self.mirror.close()
        finally:
            self.lock.release()


def _has_checkpoints(folder: CheckpointFolder, names: list[str]) -> CheckpointError:
    listed = ", ".join(names[-3:]) if len(names) <= 3 else f"{len(names)} checkpoints, up to {names[-1]}"
    cure = 'Checkpoints(resume=True) resumes from the last one, resume="fresh" moves the folder aside; '
    cure += "or give another train_dir"
    what = f"{folder.path} has {listed}, which this training would not resume from"
    return CheckpointError(what, cure=cure)
