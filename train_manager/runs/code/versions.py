"""The version of a repository that a run had: its commit, with the changes of the run's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code.commit_files import CommitFiles
from train_manager.runs.code.patch_text import Hunk, Line, apply_hunks, lines_of
from train_manager.runs.code.recorded_files import MOST_BYTES, RecordedFiles

LEFT_OUT: Final = "left out"


@final
class Version:
    """A repository as it was when a run began.

    Args:
        train_dir: of the run.
        repository: what the run's code record tells of it.
        elsewhere: where the commit may be found, besides the recorded folder.
    """

    def __init__(self, train_dir: Path, repository: Mapping[str, Any], elsewhere: Sequence[str] = ()) -> None:
        self._recorded = RecordedFiles(train_dir, repository)
        self.entries = self._recorded.entries
        self.commit: str | None = repository.get("commit")
        self.of_commit = CommitFiles(self.commit, [repository.get("path") or "", *elsewhere])

    def hunks(self, path: str) -> list[Hunk] | None:
        """Return the hunks of a file; an empty list if it is as in the commit, None if its lines are not recorded."""
        if path not in self.entries:
            return []
        return self._recorded.hunks.get(path) if self.entries[path]["how"] in ("patch", "stored") else None

    def is_binary(self, path: str) -> bool:
        """Return whether the patch or the content tells that a file is not text."""
        return self._recorded.hunks.get(path, []) is None or b"\0" in (self.content(path) or b"")

    def size(self, path: str) -> int | None:
        """Return how large a file is, if that is known."""
        if path in self.entries:
            return self.entries[path].get("size")
        content = self.of_commit.content(path)
        return None if content is None else len(content)

    def state(self, path: str) -> tuple[object, ...] | None:
        """Return mode, SHA-256 and size, by which versions of a file are compared; None if the file is not there."""
        if (entry := self.entries.get(path)) is not None:
            deleted = entry["how"] == "deleted"
            return None if deleted else (entry.get("mode"), entry.get("sha256"), entry.get("size"))
        content = self.of_commit.content(path)
        if content is None:
            return None
        return (self.of_commit.files or {})[path][0], sha256(content).hexdigest(), len(content)

    def content(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is not known."""
        entry = self.entries.get(path, {"how": "commit"})
        if entry["how"] == "commit":
            return self.of_commit.content(path)
        # A larger file is not read: the comparison aligns lines in memory.
        if entry["how"] in ("stored", "archive"):
            return self._recorded.content(entry) if entry.get("size", 0) <= MOST_BYTES else None
        # Only a patch is recorded (version 1): the content is the commit's file with the patch applied.
        hunks, base = self.hunks(path), self.of_commit.content(path)
        if hunks is None or (base is None and entry.get("status") != "new"):
            return None
        lines: list[Line] = [*lines_of(base or b"")]
        return b"".join(line for line in apply_hunks(lines, hunks) if isinstance(line, bytes))

    def why_unknown(self, path: str) -> str:
        """Say why the content of a file is not known; nothing if it is."""
        entry = self.entries.get(path, {})
        if entry.get("how") == LEFT_OUT:
            return f"its content was left out: {entry.get('why') or 'no reason is recorded'}"
        if entry.get("size", 0) > MOST_BYTES:
            return "it is too large to be compared line by line"
        if self.content(path) is not None:
            return ""
        return self.of_commit.problem or "its content is missing in the record"
