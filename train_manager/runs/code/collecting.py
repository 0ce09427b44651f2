"""The files of a repository that its commit does not have as they are: into the store, or named with the reason.

Each file is taken by what it holds at one moment: what is compared is what is stored, also if it changes meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from train_manager.files.secrets import reason_to_leave_out
from train_manager.reporting.values import plural
from train_manager.runs.code.changes import Changes, Committed
from train_manager.runs.code.outputs import WHY, TrainDirs, too_many
from train_manager.runs.code.reading import FILE, PROGRAM, FileNow, Unreadable, read_now, size_now
from train_manager.runs.code.store import Store

TOO_LARGE: Final = "it is larger than "
TOO_MUCH: Final = "the record would hold more than "
MOST_NAMED: Final = 5


@final
@dataclass(frozen=True)
class Limits:
    """How much a code record may hold, and how long git may take."""

    file: int = 5_000_000  # bytes; a larger file is left out, and named with its hash
    total: int = 50_000_000  # bytes that all kept files have together
    hashed: int = 1_000_000_000  # bytes of left out files that are read for their hashes
    names: int = 20_000  # new files; the folders that exceed this number are left out as a whole
    seconds: float = 10.0  # after this time a git command is ended


@final
@dataclass
class Budget:
    """How much of the limits is used, by all repositories of a record together."""

    limits: Limits
    kept: int = 0  # bytes put into the store so far
    hashed: int = 0  # bytes of left out files that were read so far

    def reason_against(self, size: int) -> str | None:
        """Return why a file of this size is left out; None if it fits."""
        if size > self.limits.file:
            return f"{TOO_LARGE}{_megabytes(self.limits.file)}"
        if self.kept + size > self.limits.total:
            return f"{TOO_MUCH}{_megabytes(self.limits.total)}"
        return None

    def may_read(self, size: int) -> bool:
        """Return whether a file that is left out may be read for its hash, and count it if so."""
        if self.hashed + size > self.limits.hashed:
            return False
        self.hashed += size
        return True


@final
@dataclass
class Collection:
    """Collect the files below a folder."""

    root: str  # the folder of the working tree
    object_format: str  # the hash function of the repository: sha1 or sha256
    budget: Budget  # shared with the other repositories of the record
    train_dirs: TrainDirs  # knows which files runs have written
    store: Store
    keeps_modes: bool = True  # whether the file system keeps the executable bit
    files: list[dict[str, Any]] = field(default_factory=list)  # an entry of the record for each file
    lfs: list[str] = field(default_factory=list)  # paths of files of which the commit has the LFS pointer
    # Changed and deleted files of the commit, each with the hash of its present content, for the text of differences.
    differing: dict[str, tuple[Committed, str]] = field(default_factory=dict)

    def collect(self, changes: Changes, new: Iterable[str]) -> None:
        """Keep the changed and the new files; small files first, so that data does not push code out."""
        self.lfs += changes.lfs
        for committed in changes.gone:
            self._gone(committed)
        doubtful = {file.path: file for file in changes.doubtful}
        # Sorted by size: if the budget runs out, it is the large files that are left out.
        for path in sorted({*doubtful, *new}, key=lambda path: (size_now(self.root, path), os.fsencode(path))):
            self._take(path, doubtful.get(path), changes)
        self.files.sort(key=lambda file: os.fsencode(file["path"]))
        self.lfs.sort()

    def without_outputs(self, names: list[str], ran: frozenset[str]) -> list[str]:
        """Return the new files that no training wrote, up to the limit; the other ones are named in the record.

        Args:
            names: of the files.
            ran: those that are kept however many there are.
        """
        outputs = {name: folder for name in names if (folder := self.train_dirs.holding(name)) is not None}
        for folder in sorted({*outputs.values()}):
            self.leave_out(f"{folder}/", "new", WHY)
        kept = [name for name in names if name not in outputs]
        # The files that ran do not count: a folder with thousands of outputs must not take the script away.
        left: set[str] = set()
        for folder, files in too_many([name for name in kept if name not in ran], self.budget.limits.names):
            self.leave_out(f"{folder or '.'}/", "new", f"{len(files)} new files are too many to keep")
            left.update(files)
        return [name for name in kept if name not in left]

    def leave_out(self, path: str, status: str, why: str, **facts: Any) -> None:
        """Name a file or a folder that is not kept, and why."""
        self._note(path, "left out", status, **facts, why=why)

    def _take(self, path: str, committed: Committed | None, changes: Changes) -> None:
        """Keep a file, unless it is as in the commit, or name it."""
        status, size = "new" if committed is None else "changed", size_now(self.root, path)
        # A file of the commit is read however large it is: only its content says whether it differs.
        why = None if committed else self.budget.reason_against(size)
        # A file with a secret name continues to `_keep`, which reports the name in place of the size.
        if why and reason_to_leave_out(path, None) is None and not self.budget.may_read(size):
            self.leave_out(path, status, f"{why}; it was not read for a hash either", size=size)
            return
        try:
            found = read_now(self.root, path, keep=self.budget.limits.file, object_format=self.object_format)
        except Unreadable as problem:
            self.leave_out(path, status, str(problem), size=size)
            return
        if committed is None:
            if found is not None:  # None: the program has deleted the file since git listed it
                self._keep(path, status, found, found.mode, changes)
            return
        if found is None:
            self._gone(committed)
            return
        # Where the file system has no executable bit, the mode of the commit counts; a link is a link everywhere.
        mode = found.mode if self.keeps_modes or found.mode not in (FILE, PROGRAM) else committed.mode
        if mode == committed.mode and found.blob == committed.blob:
            return
        # The commit has a pointer and the file has the content that the pointer names: as LFS has checked it out.
        if changes.pointers.get(path, ("", 0))[0] == found.sha256 and found.mode == committed.mode:
            self.lfs.append(path)
        # The first three digits of a mode are the kind of the entry: a file that became a link has no diff of lines.
        elif self._keep(path, status, found, mode, changes) and mode[:3] == committed.mode[:3]:
            self.differing[path] = committed, found.blob

    def _keep(self, path: str, status: str, found: FileNow, mode: str, changes: Changes) -> bool:
        """Keep a file, and return whether it may be kept."""
        facts = {"size": found.size, "sha256": found.sha256, "mode": mode}
        why = self.budget.reason_against(found.size) or ("" if found.content is not None else "it grew meanwhile")
        # A content that is in the store was searched for secrets as it was stored; a too large one is not in memory.
        is_looked_into = not why and not self.store.has(found.sha256, found.size)
        reason = reason_to_leave_out(path, found.content if is_looked_into else None)
        if path in changes.encrypted:
            self.leave_out(path, status, f"its filter {changes.encrypted[path]!r} keeps it secret in the repository")
        elif reason is not None:  # named without its hash: a short password could be guessed from it
            self.leave_out(path, status, reason, size=found.size, mode=mode)
        elif why or found.content is None:
            self.leave_out(path, status, why, **facts)
        else:
            self.budget.kept += found.size
            self.store.keep(found.content)
            self._note(path, "stored", status, **facts)
            return True
        return False

    def _gone(self, committed: Committed) -> None:
        self._note(committed.path, "deleted", "changed", mode=committed.mode)
        self.differing[committed.path] = committed, "0" * len(committed.blob)

    def _note(self, path: str, how: str, status: str, **facts: Any) -> None:
        known = {"size": 0, "sha256": "", "mode": ""}
        self.files.append({"path": path, "how": how, "status": status, **known, **facts})


def too_large_in_words(files: Iterable[Mapping[str, Any]]) -> str | None:
    """Return which files were left out for their size, the largest by name; None if there is none.

    >>> too_large_in_words([{"path": "a.bin", "size": 60_000_000, "why": "it is larger than 5 MB"}])
    '1 file of 60 MB was left out, as too large: a.bin (60 MB)'
    """
    left = [file for file in files if str(file.get("why", "")).startswith((TOO_LARGE, TOO_MUCH))]
    if not left:
        return None
    left.sort(key=lambda file: (-file["size"], file["path"]))
    names = [f"{file['path']} ({_megabytes(file['size'])})" for file in left[:MOST_NAMED]]
    more = f" and {len(left) - MOST_NAMED:,} more" if len(left) > MOST_NAMED else ""
    count = f"{plural(len(left), 'file')} of {_megabytes(sum(file['size'] for file in left))}"
    return f"{count} {'was' if len(left) == 1 else 'were'} left out, as too large: {', '.join(names)}{more}"


def _megabytes(size: int) -> str:
    return f"{float(f'{size / 1_000_000:.3g}'):g} MB"
