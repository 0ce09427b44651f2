"""Repositories inside of a repository: its submodules, and others that happen to lie in its folders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, final

from train_manager.runs.code.changes import Changes
from train_manager.runs.code.git_commands import GitTrouble
from train_manager.runs.code.repository import Repository, find_repository


@final
@dataclass(frozen=True)
class Inner:
    """A repository inside of another.

    Attributes:
        path: its folder, below that of the outer one.
        recorded: the commit that the outer one names; None if it is not a submodule.
        repository: what is there; None if it is not checked out.
        reason: why it cannot be recorded, or an empty text.
    """

    path: str
    recorded: str | None
    repository: Repository | None
    reason: str = ""

    def told(self, has_changes: bool = False) -> dict[str, Any]:
        """Return what the record of the outer repository says of it."""
        commit = self.repository.commit if self.repository else None
        return {
            "path": self.path,
            "commit": commit,
            "recorded_commit": self.recorded,
            "state": self._state(has_changes),
        }

    def _state(self, has_changes: bool) -> str:
        if self.repository is None:
            return self.reason or "not checked out"
        states = ["not a submodule"] if self.recorded is None else []
        if self.recorded not in (None, self.repository.commit):
            states.append("other commit")
        return ", ".join([*states, *(["changed"] if has_changes else [])]) or "clean"


def inner_repositories(outer: Repository, changes: Changes, seconds: float) -> list[Inner]:
    """Return the repositories directly inside of another, by their paths."""
    recorded: dict[str, str | None] = {**changes.submodules, **dict.fromkeys(changes.nested)}
    return [_inner(outer, path, commit, seconds) for path, commit in sorted(recorded.items())]


def _inner(outer: Repository, path: str, recorded: str | None, seconds: float) -> Inner:
    folder = outer.root / path
    # Without a .git of its own git would find the outer repository.
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return Inner(path, recorded, None)
    try:
        found = find_repository(folder, seconds)
    except GitTrouble as trouble:
        return Inner(path, recorded, None, trouble.what)
    if not os.path.samefile(found.root, folder):
        return Inner(path, recorded, None, "its files are elsewhere")
    if found.common_folder == outer.common_folder:
        return Inner(path, recorded, None, "another working tree of this repository")
    return Inner(path, recorded, found)
