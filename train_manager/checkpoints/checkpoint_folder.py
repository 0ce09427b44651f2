"""The folder of all checkpoints of a training: it lists them, finds a sound one, and keeps the best and newest."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.checkpoints.checkpoint import copy_checkpoint, read_checkpoint, write_checkpoint
from train_manager.checkpoints.checkpoint_names import checkpoints_in, folder_in, name_of, order_of, step_of
from train_manager.checkpoints.hashed_file import Gone
from train_manager.checkpoints.verification import is_damage, read_manifest, verify
from train_manager.files.atomic import free_path, quote_path
from train_manager.files.leftovers import delete, remove_leftovers
from train_manager.files.lock import WriterLock
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count, require_one_of

SUPERSEDED: Final = "superseded"
"""The folder, beside the checkpoints, for checkpoints that are newer than the one from which a run has resumed."""

_SHOWN_STEPS: Final = 8  # steps that an error lists, at most


class _Refused(NamedTuple):
    """A checkpoint that is damaged or cannot be read, and the number of sound ones that were found before it."""

    path: Path
    error: CheckpointError
    number: int


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
    WriterLock of the training. What is damaged is never deleted: it is renamed to ``damaged-<name>``, with a warning,
    as a sound one is used instead.

    Args:
        path: the folder; it is made when something is written.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._known_sound: set[Path] = set()  # checkpoints that this object has written and hashed, or verified
        # Checkpoints that could not be read: they may be sound, so `keep` never deletes them.
        self._unreadable: set[Path] = set()
        # Of each checkpoint the monitored metric, its value and mode, so that a manifest is read once.
        self._facts: dict[Path, Mapping[str, Any]] = {}

    def checkpoints(self) -> list[Path]:
        """Return all checkpoints, oldest first, as ``checkpoints_in`` does."""
        return checkpoints_in(self.path)

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
        with suppress(Gone):
            return self._find(at, mode)
        # The run that has deleted the checkpoint had saved a newer one before, which the second look finds.
        return self._find(at, mode)

    def _find(self, at: str | int | os.PathLike[str], mode: str | None) -> Path:
        if at == "last":
            return self._first_of(reversed(self.checkpoints()), "holds no sound checkpoint")
        if at == "best":
            return self._first_of(self._best_first(mode), "holds no sound checkpoint with a monitored value")
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
        self._facts[path] = _ranking_facts(facts)
        return path

    def take(self, checkpoint: Path) -> Path:
        """Copy a checkpoint of another folder under its name, and return the path of the copy."""
        path = copy_checkpoint(self.path, checkpoint)
        self._known_sound.add(path)
        return path

    def keep(self, n: int, mode: str | None = None) -> None:
        """Delete all but the newest ``n`` sound checkpoints and the best sound one.

        What this object has written is sound, since it was hashed on the way. Others are verified once, before anything
        older is deleted; damaged ones are set aside and do not count.

        Args:
            n: how many to keep, at least 1.
            mode: "min" or "max": which monitored value is the best; None keeps no best one.
        """
        own = self.checkpoints()
        if len(own) <= require_count(n, "n", at_least=1):
            return
        # A checkpoint that a user deletes by hand while it is verified: the next call deletes what is left.
        with suppress(Gone):
            kept = {*self._trusted(reversed(own), n)}
            if mode is not None:
                kept.update(self._trusted(self._best_first(mode), 1))
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
        return self.set_aside([path for path in self.checkpoints() if _order(path) > limit])

    def set_aside(self, checkpoints: Sequence[Path]) -> list[Path]:
        """Move checkpoints to ``superseded/``, and return their new paths."""
        # Forgotten before the first rename: a rename that fails must leave no path here that no longer exists.
        for path in checkpoints:
            self._forget(path)
        return [_move(path, self.path / SUPERSEDED / path.name) for path in checkpoints]

    def clean_up(self, lock: WriterLock) -> None:
        """Remove the half-written and half-deleted checkpoints of killed processes.

        Call this while this process writes nothing here, and holds the lock. Where the system has no locks, another
        process may be writing, so nothing is removed.
        """
        if lock.is_held and lock.is_enforced:
            remove_leftovers(self.path)

    def _first_of(self, paths: Iterable[Path], missing: str) -> Path:
        """Return the first sound one of checkpoints; if there is none, all stay under their names."""
        sound, refused = self._first_sound(paths)
        if sound:
            self._set_aside(refused, sound)
            return sound[0]
        # The error of the first one says it for all: they are damaged, of another format, or their disk is away.
        if refused:
            error = refused[0].error
            anew = 'resume="fresh" moves all aside and begins anew'
            cure = anew if is_damage(error) else "try again when it can be read"
            error.cure = error.cure or f"no other checkpoint can be used; {cure}"
            raise error
        raise self._nothing(missing)

    def _trusted(self, paths: Iterable[Path], n: int) -> list[Path]:
        """Return the first ``n`` checkpoints that are known to be sound, or are found to be."""
        readable = (path for path in paths if path not in self._unreadable)
        sound, refused = self._first_sound(readable, n, self._known_sound)
        self._set_aside(refused, sound)
        return sound

    def _first_sound(
        self, paths: Iterable[Path], n: int = 1, known: Collection[Path] = ()
    ) -> tuple[list[Path], list[_Refused]]:
        """Return the first ``n`` sound ones of checkpoints, and those on the way that are not."""
        sound: list[Path] = []
        refused: list[_Refused] = []
        for path in paths:
            try:
                if path not in known:
                    verify(path)
            except CheckpointError as error:
                self._forget(path)
                if isinstance(error, Gone):
                    raise
                refused.append(_Refused(path, error, len(sound)))
            else:
                self._known_sound.add(path)
                sound.append(path)
            if len(sound) == n:
                break
        return sound, refused

    def _best_first(self, mode: str | None) -> list[Path]:
        """Return the checkpoints with a monitored value, the best one first, behind those without a sound manifest."""
        refused: list[Path] = []
        monitored: dict[Path, Mapping[str, Any]] = {}
        for path in self.checkpoints():
            try:
                facts = self._facts_of(path)
            except Gone:
                continue
            except CheckpointError:
                refused.append(path)  # the first one, so that `_first_sound` tells why
            else:
                # nan compares as neither smaller nor larger, so it would stay wherever the sort finds it.
                if facts["monitored"] is not None and not math.isnan(facts["monitored"]):
                    monitored[path] = facts
        if not monitored:
            return refused
        *_, newest = monitored.values()
        mode = require_one_of(mode or newest["mode"] or "min", "mode", ("min", "max"))
        # A loss and an accuracy cannot be compared: only checkpoints with the newest one's metric are ranked.
        ranked = {
            path: facts["monitored"] for path, facts in monitored.items() if facts["monitor"] == newest["monitor"]
        }
        # sorted() is stable, also in reverse: of equal values the earlier one comes first.
        return refused + sorted(ranked, key=ranked.__getitem__, reverse=mode == "max")

    def _facts_of(self, path: Path) -> Mapping[str, Any]:
        if path not in self._facts:
            self._facts[path] = _ranking_facts(read_manifest(path))
        return self._facts[path]

    def _set_aside(self, refused: Iterable[_Refused], sound: Sequence[Path]) -> None:
        """Rename the damaged ones of refused checkpoints, and warn of each with the sound one that is used instead."""
        for path, error, number in refused:
            if is_damage(error):
                fate = _rename_damaged(path)
            else:
                self._unreadable.add(path)
                fate = "it stays as it is"
            instead = f"{sound[number].name} is used instead" if number < len(sound) else "there is no other one"
            warnings.warn(f"{error.what}; {fate}, and {instead}", RuntimeWarning, stacklevel=users_level())

    def _forget(self, path: Path) -> None:
        self._known_sound.discard(path)
        self._facts.pop(path, None)

    def _require_sound(self, path: Path, asked: str) -> Path:
        try:
            verify(path)
        except Gone:
            raise self._nothing(f"has no checkpoint {asked}", path) from None
        except CheckpointError as error:
            raise CheckpointError(error.what, name=path.name, cure=error.cure or self._what_is_there(path)) from error
        self._known_sound.add(path)
        return path

    def _nothing(self, what: str, asked: Path | None = None) -> CheckpointError:
        name = "" if asked is None else asked.name
        return CheckpointError(f"{quote_path(self.path)} {what}", name=name, cure=self._what_is_there(asked))

    def _what_is_there(self, asked: Path | None) -> str:
        steps = sorted({step_of(path) for path in self.checkpoints() if path != asked})
        if not steps:
            return "there is no other checkpoint" if asked is not None and asked.exists() else "it has none"
        order = None if asked is None else order_of(asked)
        # The newest steps, and of a step that is missing also the nearest one that exists.
        more = len(steps) - _SHOWN_STEPS
        text = "".join([f"... ({more} earlier ones), " if more > 0 else "", ", ".join(map(str, steps[-_SHOWN_STEPS:]))])
        nearest = "" if order is None else f"; the nearest is {min(steps, key=lambda step: abs(step - order[0]))}"
        return f"there are checkpoints of the steps {text}{nearest}"


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
    os.rename(path, target)
    return target


def _ranking_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts.get(name) for name in ("monitor", "monitored", "mode")}
