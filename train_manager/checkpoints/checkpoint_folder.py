"""The folder of all checkpoints of a training: it lists them, finds a sound one, and keeps the best and newest."""

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
from train_manager.checkpoints.verification import read_manifest, retry_if_gone, verify
from train_manager.files.atomic import free_path, quote_path
from train_manager.files.leftovers import delete, remove_leftovers
from train_manager.files.lock import WriterLock
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count, require_one_of

SUPERSEDED: Final = "superseded"
"""The folder, beside the checkpoints, for checkpoints that are newer than the one from which a run has resumed."""

_SHOWN_STEPS: Final = 8  # steps that an error lists, at most


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
        self._known_sound: set[Path] = set()  # checkpoints that this object has written and hashed, or verified
        # Checkpoints that could not be read, or are links: they may be sound, so `keep` never deletes them.
        self._unreadable: set[Path] = set()
        # Of each checkpoint the name of the monitored metric and its value, so that a manifest is read once.
        self._values: dict[Path, tuple[Any, float | None]] = {}

    def checkpoints(self) -> list[Path]:
        """Return all checkpoints, oldest first, by their names alone: no file is read, and no clock.

        Raises:
            CheckpointError: something else is in the place of the folder.
        """
        try:
            with os.scandir(self.path) as entries:
                # scandir knows which entries are folders without a system call per entry.
                found = [Path(entry.path) for entry in entries if _is_checkpoint(entry)]
        except FileNotFoundError:
            return []  # the first write makes the folder
        except NotADirectoryError as error:
            cure = "move it away, or give another train_dir"
            raise CheckpointError(f"{self.path} is to hold checkpoints, but is not a folder", cure=cure) from error
        return sorted(found, key=_order)

    def last_sound(self) -> Path | None:
        """Return the newest checkpoint that is whole; None if there is none.

        A damaged one on the way is renamed to ``damaged-<name>``, with a RuntimeWarning.
        """
        return retry_if_gone(lambda: self._first_sound(reversed(self.checkpoints())))

    def find(self, at: str | int | os.PathLike[str], *, mode: str | None = None) -> Path:
        """Return one checkpoint, verified.

        Args:
            at: "last" for the newest sound one, "best" for the sound one with the best monitored value, a step, a name
                in this folder, or a path: of a checkpoint, or of another ``train_dir``, whose last sound one is taken.
                The last one of a step counts.
            mode: how to find "best": "min" for the smallest monitored value, "max" for the largest; None takes the fact
                "mode" of the newest checkpoint.

        Raises:
            CheckpointError: it is not there or damaged. What is there is named.
        """
        return retry_if_gone(lambda: self._find(at, mode))

    def _find(self, at: str | int | os.PathLike[str], mode: str | None) -> Path:
        if at == "last":
            return self._first_sound(reversed(self.checkpoints())) or self._nothing("holds no sound checkpoint")
        if at == "best":
            missing = "holds no sound checkpoint with a monitored value"
            return self._first_sound(self._best_first(mode or self._mode())) or self._nothing(missing)
        if isinstance(at, str | os.PathLike):
            # A name in this folder comes before a path from the working folder.
            path = self.path / at if (self.path / at).exists() else Path(at)
            of_another = CheckpointFolder(folder_in(path))
            if path.is_dir() and of_another.checkpoints():
                # The other object has verified the checkpoint, so `read` of this one need not hash it again.
                found = of_another.find("last")
                self._known_sound.add(found)
                return found
            return self._require_sound(path, f"{os.fspath(at)!r}")
        step = require_count(at, "at", at_least=0, error=CheckpointError)
        # A step that was saved twice has names that end in -2, -3: the last one counts.
        of_step = [path for path in self.checkpoints() if step_of(path) == step]
        return self._require_sound(of_step[-1] if of_step else self.path / name_of(step), f"of step {step}")

    def read(self, path: Path) -> dict[str, Any]:
        """Return the state of a checkpoint; its files are hashed only if this object has not done so."""
        return read_checkpoint(path, is_verified=path in self._known_sound)

    def list_damaged(self) -> list[str]:
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
            facts: the facts for its manifest; ``facts["monitored"]`` decides which checkpoint is the best.

        Raises:
            CheckpointError: the state cannot be stored, or the disk cannot hold it.
        """
        path = write_checkpoint(self.path, self.next_path(step).name, state, {"step": step, **facts})
        self._known_sound.add(path)
        self._values[path] = _monitored_value(facts)
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
        # A user's link to a checkpoint elsewhere is neither counted nor deleted.
        own = [path for path in self.checkpoints() if not path.is_symlink()]
        kept = {*self._first_known_sound(reversed(own), n)}
        if mode is not None:
            kept.update(self._first_known_sound([path for path in self._best_first(mode) if path in own], 1))
        for path in own:
            if path not in kept | self._unreadable:
                delete(path)
                self._forget(path)

    def set_aside_after(self, at: int | Path) -> list[Path]:
        """Move the checkpoints that are newer than a step, or than one checkpoint, to ``superseded/``.

        A run that resumes from an earlier checkpoint calls this, so that its own are the newest and none is
        overwritten.

        Returns:
            The new paths of the moved checkpoints.
        """
        # A step as the limit keeps all of its checkpoints, whatever their number behind the dash.
        limit = (at, math.inf) if isinstance(at, int) else _order(at)
        later = [path for path in self.checkpoints() if _order(path) > limit]
        # Forgotten before the first rename: a rename that fails must leave no path here that no longer exists.
        for path in later:
            self._forget(path)
        return [_move(path, self.path / SUPERSEDED / path.name) for path in later]

    def clean_up(self, lock: WriterLock) -> None:
        """Remove the half-written and half-deleted checkpoints of killed processes.

        Call this while this process writes nothing here, and holds the lock. Where the system has no locks, another
        process may be writing, so nothing is removed.
        """
        if lock.is_held and lock.is_enforced:
            remove_leftovers(self.path)

    def _first_sound(self, paths: Iterable[Path]) -> Path | None:
        damaged: list[tuple[Path, CheckpointError]] = []
        sound = next((path for path in paths if self._is_sound(path, damaged)), None)
        # The error of the first one says it for all: they are of another format, or their disk is away.
        if sound is None and damaged and all(isinstance(error, Unreadable) for _, error in damaged):
            raise damaged[0][1]
        instead = "there is no other one" if sound is None else f"{sound.name} is used instead"
        # Renamed only after a sound one was found, because the warning names the one that is used instead.
        for path, error in damaged:
            self._set_aside(path, error, instead)
        return sound

    def _first_known_sound(self, paths: Iterable[Path], n: int) -> list[Path]:
        found: list[Path] = []
        for path in paths:
            damaged: list[tuple[Path, CheckpointError]] = []
            # A checkpoint that another process has just deleted does not count.
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
        # A loss and an accuracy cannot be compared: only checkpoints with the newest one's metric are ranked.
        last = self._values[[*values][-1]][0] if values else None
        ranked = {path: sign * value for path, value in values.items() if self._values[path][0] == last}
        return sorted(ranked, key=ranked.__getitem__)  # sorted() is stable: of equal values the earlier one comes first

    def _mode(self) -> str:
        newest = next((path for path in reversed(self.checkpoints()) if self._value(path) is not None), None)
        return "min" if newest is None else read_manifest(newest).get("mode", "min")

    def _value(self, path: Path) -> float | None:
        if path not in self._values:
            try:
                self._values[path] = _monitored_value(read_manifest(path))
            except Gone:
                return None
            except CheckpointError as error:
                self._set_aside(path, error, "it is not looked at for the best one")
                return None
        return self._values[path][1]

    def _set_aside(self, path: Path, error: CheckpointError, instead: str) -> None:
        self._forget(path)
        # A missing permission or a newer format is not damage: the files stay under their name.
        if isinstance(error, Unreadable) or path.is_symlink():
            self._unreadable.add(path)
            fate = "it is a link and stays as it is" if path.is_symlink() else "it stays as it is"
        else:
            fate = _rename_damaged(path)
        warnings.warn(f"{error.what}; {fate}, and {instead}", RuntimeWarning, stacklevel=users_level())

    def _forget(self, path: Path) -> None:
        self._known_sound.discard(path)
        self._values.pop(path, None)

    def _require_sound(self, path: Path, asked: str) -> Path:
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
            f"{quote_path(self.path)} {what}",
            name="" if asked is None else asked.name,
            cure=self._what_is_there(asked),
        )

    def _what_is_there(self, asked: Path | None) -> str:
        steps = sorted({step_of(path) for path in self.checkpoints() if path != asked})
        # All checkpoints are damaged: the cure says how to begin anew without the loss of any file.
        if not steps and self.list_damaged() and asked is None:
            return f'there are {", ".join(self.list_damaged()[-3:])}; resume="fresh" moves all aside and begins anew'
        if not steps:
            return "there is no other checkpoint" if asked is not None and asked.exists() else "it has none"
        order = None if asked is None else order_of(asked)
        # The newest steps, and of a step that is missing also the nearest one that exists.
        more = len(steps) - _SHOWN_STEPS
        text = "".join([f"... ({more} earlier ones), " if more > 0 else "", ", ".join(map(str, steps[-_SHOWN_STEPS:]))])
        nearest = "" if order is None else f"; the nearest is {min(steps, key=lambda step: abs(step - order[0]))}"
        return f"there are checkpoints of the steps {text}{nearest}"


def _is_checkpoint(entry: os.DirEntry[str]) -> bool:
    # is_dir() follows links, so a link to a checkpoint elsewhere counts as a checkpoint.
    return order_of(Path(entry.name)) is not None and entry.is_dir()


def _order(path: Path) -> tuple[int, int]:
    order = order_of(path)
    assert order is not None, path
    return order


def _rename_damaged(path: Path) -> str:
    try:
        return f"it is kept as {_move(path, path.with_name(f'damaged-{path.name}')).name}"
    except OSError as reason:  # a process that only reads may not be allowed to rename
        return f"it cannot be renamed ({reason.strerror})"


def _move(path: Path, target: Path) -> Path:
    target.parent.mkdir(exist_ok=True)
    target = free_path(target)
    if path.is_symlink():
        target.symlink_to(path.resolve())  # a relative link would lead elsewhere from its new folder
        path.unlink()
    else:
        os.rename(path, target)
    return target


def _monitored_value(facts: Mapping[str, Any]) -> tuple[Any, float | None]:
    return facts.get("monitor"), _comparable(facts.get("monitored"))


def _comparable(value: object) -> float | None:
    # nan compares as neither smaller nor larger, so it would stay wherever the sort finds it.
    if isinstance(value, int | float) and not math.isnan(value):
        return float(value)
    return None
