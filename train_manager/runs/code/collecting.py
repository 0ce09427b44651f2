"""The files of a repository that its commit does not have as they are: into a patch and an archive, or named.

Each file is taken by what it holds at one moment. A file that changes while it is looked at goes into the archive as
it is read there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code import patch
from train_manager.runs.code.archive import FILE, PROGRAM, ArchivedFile, write_archive
from train_manager.runs.code.changes import Changes, Committed
from train_manager.runs.code.clean_room import CleanRoom
from train_manager.runs.code.outputs import WHY, TrainDirs, too_many
from train_manager.runs.code.payload import ARCHIVE, PATCH
from train_manager.runs.code.reading import FileNow, Unreadable, read_now, size_now
from train_manager.runs.code.secret_files import reason_to_leave_out

_AT_ONCE: Final = 50  # old contents of a megabyte at most


@final
@dataclass(frozen=True)
class Limits:
    """How much a code record may hold, and how long git may take.

    Attributes:
        diffed: a changed file with more bytes is copied; a diff of 50 MB takes ten seconds.
        file: a file with more bytes is named with its hash, and left out.
        total: so many bytes are kept in all.
        hashed: of what is left out, so many bytes are read for their hashes.
        names: a folder of new files that brings their number above it is left out as a whole.
        seconds: a git command that does not answer in this time is ended.
    """

    diffed: int = 1_000_000
    file: int = 64_000_000
    total: int = 256_000_000
    hashed: int = 1_000_000_000
    names: int = 20_000
    seconds: float = 10.0


@final
@dataclass
class Budget:
    """What of the limits is left, for all repositories of a record."""

    limits: Limits
    kept: int = 0
    hashed: int = 0

    def fits(self, size: int) -> bool:
        """Return whether so many bytes fit, and count them if so."""
        if self.kept + size > self.limits.total:
            return False
        self.kept += size
        return True


@final
@dataclass
class Collection:
    """Collect the files below a folder.

    Attributes:
        root: the folder.
        object_format: the hash of the repository.
        budget: what may be kept.
        train_dirs: which files trainings wrote.
        keeps_modes: whether its file system keeps the mode of a program.
        files: what the record says of each file.
        lfs: files that are kept as pointers.
        patch: the differences of small files.
        archived: the others, with their status.
    """

    root: str
    object_format: str
    budget: Budget
    train_dirs: TrainDirs
    keeps_modes: bool = True
    files: list[dict[str, Any]] = field(default_factory=list)
    lfs: list[str] = field(default_factory=list)
    patch: bytes = b""
    archived: dict[str, str] = field(default_factory=dict)  # name -> status

    def compare(self, room: CleanRoom, changes: Changes) -> None:
        """Sort the files of the commit that may differ: the same, gone, small or large."""
        small: dict[str, tuple[Committed, FileNow]] = {}
        gone = list(changes.gone)
        self.lfs = list(changes.lfs)
        for committed in changes.doubtful:
            try:
                found = self._now(committed.path, self.budget.limits.diffed)
            except Unreadable as problem:
                self._unreadable(committed.path, "changed", problem)
                continue
            if found is None:
                gone.append(committed)
            elif self._mode(found, committed) == committed.mode and found.blob == committed.blob:
                continue
            elif changes.pointers.get(committed.path, ("", 0))[0] == found.sha256 and found.mode == committed.mode:
                self.lfs.append(committed.path)
            elif self._is_encrypted(committed.path, "changed", changes.encrypted):
                continue
            elif found.content is None:
                self.archived[committed.path] = "changed"
            else:
                small[committed.path] = committed, found
        self._diff(room, small, gone)

    def add_new(self, names: list[str], encrypted: Mapping[str, str], ran: frozenset[str]) -> None:
        """Sort files that are not in the commit: those to keep, and those that trainings wrote.

        Args:
            names: of the files.
            encrypted: those whose filter keeps them secret in the repository, and its name.
            ran: those that are kept however many there are.
        """
        outputs: set[str] = set()
        kept: list[str] = []
        for name in names:
            if (folder := self.train_dirs.holding(name)) is not None:
                outputs.add(folder)
            elif not self._is_encrypted(name, "new", encrypted):
                kept.append(name)
        for folder in sorted(outputs):
            self.leave_out(f"{folder}/", "new", WHY)
        few = self._few_enough([name for name in kept if name not in ran])
        self.archived.update(dict.fromkeys([*ran.intersection(kept), *few], "new"))

    def write(self, folder: Path) -> None:
        """Write the patch and the archive, as far as there is something to write."""
        chosen = self._within_limits()
        if chosen:
            write_archive(folder / ARCHIVE, self._contents(chosen))
            if not any(file["how"] == "archive" for file in self.files):
                (folder / ARCHIVE).unlink()
        if self.patch:
            (folder / PATCH).write_bytes(self.patch)
        self.files.sort(key=lambda file: os.fsencode(file["path"]))

    def leave_out(self, path: str, status: str, why: str, *, size: int = 0, sha256: str = "", mode: str = "") -> None:
        """Name a file or a folder that is not kept, and why."""
        self._note(path, "left out", status, size, sha256, mode, why=why)

    def _note(self, path: str, how: str, status: str, size: int, sha256: str, mode: str, **more: str) -> None:
        entry = {"path": path, "how": how, "status": status, "size": size, "sha256": sha256, "mode": mode, **more}
        self.files.append(entry)

    def _now(self, path: str, keep: int) -> FileNow | None:
        return read_now(self.root, path, keep=keep, object_format=self.object_format)

    def _unreadable(self, path: str, status: str, problem: Unreadable) -> None:
        self.leave_out(path, status, str(problem), size=size_now(self.root, path))

    def _is_secret(self, path: str, status: str, found: FileNow) -> bool:
        reason = reason_to_leave_out(path, found.content)
        if reason is not None:  # without its hash, by which a short password could be guessed
            self.leave_out(path, status, reason, size=found.size, mode=found.mode)
        return reason is not None

    def _is_encrypted(self, path: str, status: str, encrypted: Mapping[str, str]) -> bool:
        if path in encrypted:
            self.leave_out(path, status, f"its filter {encrypted[path]!r} keeps it secret in the repository")
        return path in encrypted

    def _diff(self, room: CleanRoom, small: dict[str, tuple[Committed, FileNow]], gone: list[Committed]) -> None:
        small = {path: pair for path, pair in small.items() if not self._is_secret(path, "changed", pair[1])}
        candidates = [*(committed for committed, _ in small.values()), *gone]
        sizes = _sizes(room, candidates)
        limit = self.budget.limits.diffed
        diffed = sorted((file for file in candidates if sizes[file.path] <= limit), key=lambda f: os.fsencode(f.path))
        parts = _without_secrets(room, diffed, patch.sections(room, diffed))
        accepted = []
        for path, (committed, found) in small.items():
            part = parts.get(path, b"")
            if part and patch.leads_to(part, found.blob):
                if not self.budget.fits(len(part)):
                    self.leave_out(path, "changed", self._too_much(), **_facts(found))
                    continue
                accepted.append(path)
                self._note(path, "patch", "changed", found.size, found.sha256, self._mode(found, committed))
            else:
                self.archived[path] = "changed"
        for committed in gone:
            part = parts.get(committed.path, b"")
            self._note(committed.path, "deleted", "changed", 0, "", committed.mode)
            if part and self.budget.fits(len(part)):
                accepted.append(committed.path)
        self.patch = b"".join(parts[path] for path in sorted(accepted, key=os.fsencode))

    def _few_enough(self, names: list[str]) -> list[str]:
        """Leave out the folders with most files until the rest is not too many to list."""
        left: set[str] = set()
        for folder, files in too_many(names, self.budget.limits.names):
            self.leave_out(f"{folder or '.'}/", "new", f"{len(files)} new files are too many to keep")
            left.update(files)
        return [name for name in names if name not in left]

    def _within_limits(self) -> list[str]:
        """Choose what is kept: small files first, so that data does not push code out."""
        chosen = []
        for size, name in sorted((size_now(self.root, name), name) for name in self.archived):
            if size > self.budget.limits.file:
                self._too_large(name, size, f"it is larger than {_megabytes(self.budget.limits.file)}")
            elif not self.budget.fits(size):
                self._too_large(name, size, self._too_much())
            else:
                chosen.append(name)
        return sorted(chosen, key=os.fsencode)

    def _too_much(self) -> str:
        return f"the record would hold more than {_megabytes(self.budget.limits.total)}"

    def _too_large(self, path: str, size: int, why: str) -> None:
        status = self.archived[path]
        if reason := reason_to_leave_out(path, None):
            self.leave_out(path, status, reason, size=size)
        elif self.budget.hashed + size > self.budget.limits.hashed:
            self.leave_out(path, status, f"{why}; it was not read for a hash either", size=size)
        else:
            self.budget.hashed += size
            try:
                found = self._now(path, 0)
            except Unreadable as problem:
                self._unreadable(path, status, problem)
                return
            if found is None:
                self._vanished(path, status)
            else:
                self.leave_out(path, status, why, **_facts(found))

    def _contents(self, chosen: list[str]) -> Iterator[ArchivedFile]:
        for path in chosen:
            status = self.archived[path]
            try:
                found = self._now(path, self.budget.limits.file)
            except Unreadable as problem:
                self._unreadable(path, status, problem)
                continue
            if found is None:
                self._vanished(path, status)
                continue
            if self._is_secret(path, status, found):
                continue
            if found.content is None:
                self.leave_out(path, status, "it grew while it was recorded", **_facts(found))
                continue
            self._note(path, "archive", status, found.size, found.sha256, found.mode)
            yield ArchivedFile(path, found.mode, found.content)

    def _vanished(self, path: str, status: str) -> None:
        """Note a file that was deleted while it was recorded; a new one has never been there."""
        if status == "changed":
            self._note(path, "deleted", status, 0, "", "")

    def _mode(self, found: FileNow, committed: Committed) -> str:
        """Return the mode that counts: where a file system does not keep it, that of the commit."""
        return found.mode if self.keeps_modes or found.mode not in (FILE, PROGRAM) else committed.mode


def _without_secrets(room: CleanRoom, files: list[Committed], parts: dict[str, bytes]) -> dict[str, bytes]:
    """Return the parts of a patch that take no secret away: what a file no longer holds is in its part."""
    kept = {path: part for path, part in parts.items() if reason_to_leave_out(path, patch.removed(part)) is None}
    binary = [file for file in files if patch.is_binary(kept.get(file.path, b""))]
    for start in range(0, len(binary), _AT_ONCE):
        some = binary[start : start + _AT_ONCE]
        contents = room.contents([file.blob for file in some])
        for file in some:
            if reason_to_leave_out(file.path, contents.get(file.blob)) is not None:
                del kept[file.path]
    return kept


def _facts(found: FileNow) -> dict[str, Any]:
    return {"size": found.size, "sha256": found.sha256, "mode": found.mode}


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:g} MB"


def _sizes(room: CleanRoom, files: list[Committed]) -> dict[str, int]:
    """Return the sizes that files have in the commit."""
    if not files:
        return {}
    asked = "".join(f"{file.blob}\n" for file in files).encode()
    answers = room.git.run("cat-file", "--batch-check=%(objectsize)", feed=asked).splitlines()
    missing = 1 << 60  # of a partial clone: it cannot be compared with
    sizes = (int(answer) if answer.isdigit() else missing for answer in answers)
    return {file.path: size for file, size in zip(files, sizes, strict=True)}
