"""A second folder for the checkpoints of a training, such as one on another disk, brought up to date by a thread.

Its checkpoints are copies, each of which gets its name only after its files have the hashes of its manifest. A folder
that cannot be written ends no training: the next call brings all that are missing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import final

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.hashed_file import translate_os_errors
from train_manager.checkpoints.manifest import MANIFEST
from train_manager.checkpoints.verification import is_damage
from train_manager.files.background import Background
from train_manager.files.lock import WriterLock
from train_manager.telling.errors import CheckpointError
from train_manager.telling.findings import Finding


@final
class Mirror:
    """Copies of the checkpoints of a folder, in ``checkpoints`` of another one.

    >>> import tempfile
    >>> source = CheckpointFolder(Path(tempfile.mkdtemp()) / "checkpoints")
    >>> path = source.write(3, {"model": {}}, {})
    >>> mirror = Mirror(Path(tempfile.mkdtemp()), source)
    >>> mirror.catch_up(keep=3, mode="min")
    >>> mirror.join()
    >>> [path.name for path in mirror.folder.checkpoints()], mirror.trouble
    (['step-000000000003'], None)

    Args:
        path: of the mirror; its parent must be there, as a disk that is missing must not be made anew on another one.
        source: the checkpoints that are copied.

    Attributes:
        path: of the mirror.
        folder: its checkpoints.
        trouble: why the last try has failed, for the findings of the training; None if it has not.
    """

    def __init__(self, path: Path, source: CheckpointFolder) -> None:
        self.path = path
        self.folder = CheckpointFolder(path / "checkpoints")
        self.trouble: Finding | None = None
        self._source, self._lock = source, WriterLock(path)
        self._background = Background(self._bring_all)
        self._asked: tuple[int | None, str] | None = None  # of a call that came while the thread was copying

    def has_some(self) -> bool:
        """Return whether there are copies that can be read now."""
        with suppress(OSError):
            return bool(self.folder.checkpoints())
        return False

    def begin(self) -> None:
        """Take the lock; a mirror that cannot be written is tried again with each checkpoint.

        Raises:
            CheckpointError: another training has this mirror.
        """
        try:
            self._prepare()
        except CheckpointError as error:
            if is_damage(error):  # no error of the system is behind it: the lock is held
                raise
            self._note(error)

    def catch_up(self, keep: int | None, mode: str) -> None:
        """Copy what is missing, in a thread; a call that comes while the thread copies leaves it to a later one.

        Args:
            keep: how many of the newest stay, beside the best one; None keeps all.
            mode: "min" or "max", which decides what is the best.
        """
        # A slow disk must not hold up the training, which would wait for the thread in `submit`.
        if self._background.is_busy:
            self._asked = keep, mode
        else:
            self._asked = None
            self._background.submit(keep, mode)

    def join(self) -> None:
        """Wait for the thread, and copy what it was asked for meanwhile."""
        self._background.join()
        if self._asked is not None:
            self.catch_up(*self._asked)
            self._background.join()

    def close(self) -> None:
        """Wait for the thread, and free the lock."""
        try:
            self.join()
        finally:
            self._lock.release()

    def _prepare(self) -> None:
        if not self._lock.is_held:
            with translate_os_errors("write", self.path):
                self.path.mkdir(exist_ok=True)
                self._lock.acquire()
                self.folder.clean_up(self._lock)

    def _bring_all(self, keep: int | None, mode: str) -> None:
        try:
            with translate_os_errors("copy", self.path):
                self._prepare()
                self.folder.path.mkdir(exist_ok=True)
                own = self._source.checkpoints()
                for newest in own[-1:]:  # what is newer here is of a course that the training has left
                    self.folder.set_aside_after(newest)
                for path in own:
                    self._bring(path)
                if keep is not None:
                    self.folder.keep(keep, mode)
        except CheckpointError as error:
            self._note(error)
            self._lock.release()  # the folder may come back as another one
        else:
            self.trouble = None

    def _bring(self, path: Path) -> None:
        copy = self.folder.path / path.name
        try:
            if copy.exists():
                # The manifest has the hashes of all files, and the time: no two checkpoints have the same.
                if (copy / MANIFEST).read_bytes() == (path / MANIFEST).read_bytes():
                    return
                self.folder.set_aside([copy])
            self.folder.take(path)
        except (CheckpointError, OSError):
            if path.exists():  # else the training has deleted it meanwhile, since newer ones are there
                raise

    def _note(self, error: CheckpointError) -> None:
        cause = error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else error.what
        what = f"checkpoints could not be copied to the mirror: {reason}"
        cure = "the training goes on, and copies what is missing with each further checkpoint"
        self.trouble = Finding("mirror", "warning", what, str(self.path), cure, code="mirror-behind")
