"""The files of a commit, asked of a repository that still has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, final

from train_manager.runs.code.changes import SUBMODULE
from train_manager.runs.code.git_commands import NO_CONFIGURATION, GitCommands, GitTrouble

_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@final
class CommitFiles:
    """What a commit holds; nothing if its objects are not there any more.

    Args:
        commit: its name; None for a repository without a commit, and for a folder without one.
        folders: where the repository may be.

    Attributes:
        problem: why the files are not known; empty if they are.
    """

    def __init__(self, commit: str | None, folders: Sequence[str]) -> None:
        self._commit = commit
        self._folders = [Path(folder) for folder in folders if folder]
        self._git: GitCommands | None = None
        self.problem = ""

    @cached_property
    def files(self) -> dict[str, tuple[str, str]] | None:
        """The mode and the object of each file, by its path; None if that is not known."""
        # A repository before its first commit has no files to differ from.
        if self._commit is None:
            return {}
        # The name goes into a command line, so a damaged record must not make an option of it.
        for folder in self._folders if _COMMIT.fullmatch(self._commit) else []:
            if not folder.is_dir():
                # The first folder is the recorded one: its problem is the one to report.
                self.problem = self.problem or f"{folder}, which had commit {self._commit:.7}, is not there any more"
                continue
            git = GitCommands(folder, environment=NO_CONFIGURATION)
            try:
                listed = git.run("ls-tree", "-r", "-z", "--full-tree", self._commit)
            except (GitTrouble, OSError) as trouble:
                self.problem = self.problem or f"the files of commit {self._commit:.7} are not known ({trouble})"
            else:
                self._git = git
                return dict(_entry(line) for line in listed.split(b"\0") if line)
        return None

    @lru_cache(maxsize=64)  # noqa: B019  a comparison asks for a file a few times, and lives a second
    def content(self, path: str) -> bytes | None:
        """Return the content of a file; None if the commit does not have it, or is not known."""
        mode, name = (self.files or {}).get(path, ("", ""))
        if not name or mode == SUBMODULE or self._git is None:
            return None
        try:
            return self._git.run("cat-file", "blob", name)
        except GitTrouble:
            return None


def _entry(line: bytes) -> tuple[str, tuple[str, str]]:
    facts, _, path = line.partition(b"\t")  # "<mode> blob <hash>\t<path>"
    mode, _, name = facts.decode().split(" ")
    return path.decode(errors="surrogateescape"), (mode, name)
