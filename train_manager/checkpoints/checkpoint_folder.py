"""The folder of all checkpoints of a training: which there are, which one is sound, and which ones stay."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.checkpoints.checkpoint_names import folder_in, name_of, order_of, step_of
from train_manager.checkpoints.hashed_file import Gone, Unreadable
from train_manager.checkpoints.leftovers import delete, remove_leftovers
from train_manager.checkpoints.verification import looked_for_again, read_manifest, verify
from train_manager.files.atomic import shown_path
from train_manager.files.lock import WriterLock
from train_manager.files.moves import free_path, move
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count, require_one_of

SUPERSEDED: Final = "superseded"
"""The folder, beside the checkpoints, of those that were left behind when a run went on from an earlier one."""

_SHOWN_STEPS: Final = 8


@final
class CheckpointFolder:
    """The checkpoints of a training, in order of their steps.

    >>> import tempfile
    >>> folder = CheckpointFolder(Path(tempfile.mkdtemp()) / "checkpoints")
    >>> for step, loss in [(10, 0.5), (20, 0.3), (30, 0.4)]:
    ...     path = folder.write(step, {"model": {}}, {"monitored": loss})
    >>> [step_of(path) for path in folder.checkpoints()]
    [10, 20, 30]
    >>> folder.find("last").name, folder.find("best", mode="min").name
    ('step-000000000030', 'step-000000000020')
    >>> folder.keep(1, mode="min")  # the newest, and the best
    >>> [step_of(path) for path in folder.checkpoints()]
    [20, 30]

    Reading may be done at any time, from any process. A process that writes, keeps, moves or cleans up holds the
    WriterLock of the training. What is damaged is never deleted: it is renamed to ``damaged-<name>``, with a warning.

    Args:
        path: the folder; it is made when something is written.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._known_sound: set[Path] = set()  # written and hashed, or verified, by this object
        self._unreadable: set[Path] = set()  # not known to be damaged, so they stay
        self._values: dict[Path, tuple[Any, float | None]] = {}  # what was monitored, and its value

    def checkpoints(self) -> list[Path]:
        """Return all checkpoints, oldest first, by their names alone: no file is read, and no clock.

        Raises:
            CheckpointError: something else is in the place of the folder.
        """
        try:
            with os.scandir(self.path) as entries:
                found = [Path(entry.path) for entry in entries if _is_checkpoint(entry)]
        except FileNotFoundError:
            return []
        except NotADirectoryError as error:
            cure = "move it away, or give another train_dir"
            raise CheckpointError(f"{self.path} is to hold checkpoints, but is not a folder", cure=cure) from error
        return sorted(found, key=_order)

    def last_sound(self) -> Path | None:
        """Return the newest checkpoint that is whole; None if there is none.

        A damaged one on the way is renamed to ``damaged-<name>``, with a RuntimeWarning.
        """
        return looked_for_again(lambda: self._first_sound(reversed(self.checkpoints())))

    def find(self, at: str | int | os.PathLike[str], *, mode: str | None = None) -> Path:
        """Return one checkpoint, verified.

        Args:
            at: "last" for the newest sound one, "best" for the sound one with the best monitored value, a step, a name
                in this folder, or a path: of a checkpoint, or of another ``train_dir``, whose last sound one is taken.
                The last one of a step counts.
            mode: what "best" is: "min" for the smallest monitored value, "max" for the largest; None takes what the
                newest checkpoint says, in the fact "mode".

        Raises:
            CheckpointError: it is not there or damaged. What is there is named.
        """
        return looked_for_again(lambda: self._found(at, mode))

    def _found(self, at: str | int | os.PathLike[str], mode: str | None) -> Path:
        if at == "last":
            return self._first_sound(reversed(self.checkpoints())) or self._nothing("holds no sound checkpoint")
        if at == "best":
            missing = "holds no sound checkpoint with a monitored value"
            return self._first_sound(self._best_first(mode or self._mode())) or self._nothing(missing)
        if isinstance(at, str | os.PathLike):
            path = self.path / at if (self.path / at).exists() else Path(at)
            of_another = CheckpointFolder(folder_in(path))
            if path.is_dir() and of_another.checkpoints():
                found = of_another.find("last")
                self._known_sound.add(found)
                return found
            return self._verified(path, f"{os.fspath(at)!r}")
        step = require_count(at, "at", at_least=0, error=CheckpointError)
        of_step = [path for path in self.checkpoints() if step_of(path) == step]
        return self._verified(of_step[-1] if of_step else self.path / name_of(step), f"of step {step}")

    def read(self, path: Path) -> dict[str, Any]:
        """Return the state of a checkpoint; its files are hashed only if this object has not done so."""
        return read_checkpoint(path, is_verified=path in self._known_sound)

    def damaged(self) -> list[str]:
        """Return the names of the checkpoints that were found damaged and set aside."""
        return sorted(path.name for path in self.path.glob("damaged-step-*"))

    def has(self, at: str | os.PathLike[str]) -> bool:
        """Return whether a name or a path is that of a checkpoint in this folder."""
        return (self.path / at).resolve().parent == self.path.resolve() and (self.path / at).exists()

    def next_path(self, step: int) -> Path:
        """Return the path that the next checkpoint of a step will have."""
        return free_path(self.path / name_of(step))

    def write(self, step: int, state: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
        """Write a checkpoint under a name that is free, and return its path.

        Args:
            step: names the checkpoint; a second one of the same step gets ``-2``.
            state: the nested state.
            facts: what its manifest tells; ``facts["monitored"]`` decides which one is the best.

        Raises:
            CheckpointError: the state cannot be stored, or the disk cannot hold it.
        """
        path = write_checkpoint(self.path, self.next_path(step).name, state, {"step": step, **facts})
        self._known_sound.add(path)
        self._values[path] = _monitored(facts)
        return path

    def keep(self, n: int, mode: str | None = None) -> None:
        """Delete all but the newest ``n`` sound checkpoints and the best sound one.

        What this object has written is sound, since it was hashed on the way. Others are verified once, before anything
        older is deleted; damaged ones are set aside and do not count.

        Args:
            n: how many to keep, at least 1.
            mode: "min" or "max": which monitored value is the best; None keeps no best one.
        """
        if len(self.checkpoints()) <= require_count(n, "n", at_least=1):
            return
        own = [path for path in self.checkpoints() if not path.is_symlink()]  # what a link leads to is not deleted
        kept = {*self._first_known_sound(reversed(own), n)}
        if mode is not None:
            kept.update(self._first_known_sound([path for path in self._best_first(mode) if path in own], 1))
        for path in own:
            if path not in kept | self._unreadable:
                delete(path)
                self._forget(path)

    def set_aside_after(self, at: int | Path) -> list[Path]:
        """Move the checkpoints that are newer than a step, or than one checkpoint, to ``superseded/``.

        A run that goes on from an earlier checkpoint calls this, so that its own are the newest and none is
        overwritten.

        Returns:
            Where they are now.
        """
        limit = (at, math.inf) if isinstance(at, int) else _order(at)
        later = [path for path in self.checkpoints() if _order(path) > limit]
        for path in later:
            self._forget(path)
        return [_moved(path, self.path / SUPERSEDED / path.name) for path in later]

    def clean_up(self, lock: WriterLock) -> None:
        """Remove what killed processes have left behind, half-written or half-deleted.

        To be called while this process writes nothing here. Where the system has no locks, another process may be
        writing, so nothing is removed.

        Raises:
            CheckpointError: another process holds the lock.
        """
        with lock:
            if lock.is_enforced and self.path.exists():
                remove_leftovers(self.path)

    def _first_sound(self, paths: Iterable[Path]) -> Path | None:
        damaged: list[tuple[Path, CheckpointError]] = []
        sound = next((path for path in paths if self._is_sound(path, damaged)), None)
        instead = "there is no other one" if sound is None else f"{sound.name} is used instead"
        for path, error in damaged:
            self._set_aside(path, error, instead)
        return sound

    def _first_known_sound(self, paths: Iterable[Path], n: int) -> list[Path]:
        found: list[Path] = []
        for path in paths:
            damaged: list[tuple[Path, CheckpointError]] = []
            with suppress(Gone):
                if path in self._known_sound or self._is_sound(path, damaged):
                    found.append(path)
            for _, error in damaged:
                self._set_aside(path, error, "it does not count among those that are kept")
            if len(found) == n:
                break
        return found

    def _is_sound(self, path: Path, damaged: list[tuple[Path, CheckpointError]]) -> bool:
        try:
            verify(path)
        except Gone:
            self._forget(path)
            raise
        except CheckpointError as error:
            self._known_sound.discard(path)
            damaged.append((path, error))
            return False
        self._known_sound.add(path)
        return True

    def _best_first(self, mode: str) -> list[Path]:
        sign = 1 if require_one_of(mode, "mode", ("min", "max")) == "min" else -1
        values = {path: value for path in self.checkpoints() if (value := self._value(path)) is not None}
        last = self._values[[*values][-1]][0] if values else None  # values of another metric cannot be compared
        ranked = {path: sign * value for path, value in values.items() if self._values[path][0] == last}
        return sorted(ranked, key=ranked.__getitem__)  # stable: the earlier one of equals first

    def _mode(self) -> str:
        newest = next((path for path in reversed(self.checkpoints()) if self._value(path) is not None), None)
        return "min" if newest is None else read_manifest(newest).get("mode", "min")

    def _value(self, path: Path) -> float | None:
        if path not in self._values:
            try:
                self._values[path] = _monitored(read_manifest(path))
            except Gone:
                return None
            except CheckpointError as error:
                self._set_aside(path, error, "it is not looked at for the best one")
                return None
        return self._values[path][1]

    def _set_aside(self, path: Path, error: CheckpointError, instead: str) -> None:
        self._forget(path)
        if isinstance(error, Unreadable) or path.is_symlink():
            self._unreadable.add(path)
            fate = "it is a link and stays as it is" if path.is_symlink() else "it stays as it is"
        else:
            fate = _renamed(path)
        warnings.warn(f"{error.what}; {fate}, and {instead}", RuntimeWarning, stacklevel=users_level())

    def _forget(self, path: Path) -> None:
        self._known_sound.discard(path)
        self._values.pop(path, None)

    def _verified(self, path: Path, asked: str) -> Path:
        if not path.exists():
            self._nothing(f"has no checkpoint {asked}", path)
        try:
            verify(path)
            self._known_sound.add(path)
        except Gone:
            self._nothing(f"has no checkpoint {asked}", path)
        except CheckpointError as error:
            raise CheckpointError(error.what, name=path.name, cure=self._what_is_there(path)) from error
        return path

    def _nothing(self, what: str, asked: Path | None = None) -> Path:
        raise CheckpointError(
            f"{shown_path(self.path)} {what}",
            name="" if asked is None else asked.name,
            cure=self._what_is_there(asked),
        )

    def _what_is_there(self, asked: Path | None) -> str:
        steps = sorted({step_of(path) for path in self.checkpoints() if path != asked})
        if not steps and self.damaged() and asked is None:
            return f'there are {", ".join(self.damaged()[-3:])}; resume="fresh" moves all aside and begins anew'
        if not steps:
            return "there is no other checkpoint" if asked is not None and asked.exists() else "it has none"
        order = None if asked is None else order_of(asked)
        more = len(steps) - _SHOWN_STEPS
        text = "".join([f"... ({more} earlier ones), " if more > 0 else "", ", ".join(map(str, steps[-_SHOWN_STEPS:]))])
        nearest = "" if order is None else f"; the nearest is {min(steps, key=lambda step: abs(step - order[0]))}"
        return f"there are checkpoints of the steps {text}{nearest}"


def _is_checkpoint(entry: os.DirEntry[str]) -> bool:
    return order_of(Path(entry.name)) is not None and entry.is_dir()  # or a link to one, which is read


def _order(path: Path) -> tuple[int, int]:
    order = order_of(path)
    assert order is not None, path
    return order


def _renamed(path: Path) -> str:
    try:
        return f"it is kept as {move(path, path.with_name(f'damaged-{path.name}')).name}"
    except OSError as reason:  # a process that only reads may not be allowed to rename
        return f"it cannot be renamed ({reason.strerror})"


def _moved(path: Path, target: Path) -> Path:
    if not path.is_symlink():
        return move(path, target)
    target.parent.mkdir(exist_ok=True)
    target = free_path(target)
    target.symlink_to(path.resolve())  # the link may lead on from its own folder
    path.unlink()
    return target


def _monitored(facts: Mapping[str, Any]) -> tuple[Any, float | None]:
    return facts.get("monitor"), _comparable(facts.get("monitored"))


def _comparable(value: object) -> float | None:
    if isinstance(value, int | float) and not math.isnan(value):
        return float(value)
    return None
