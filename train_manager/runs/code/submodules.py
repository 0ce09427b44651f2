"""Repositories inside of a repository: its submodules, and others that happen to lie in its folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from train_manager.runs.code.changes import Changes
from train_manager.runs.code.git_commands import GitTrouble
from train_manager.runs.code.repository import Repository, find_repository

NOT_CHECKED_OUT = "not checked out"


def inner_repositories(
    outer: Repository, changes: Changes, seconds: float
) -> Iterator[tuple[dict[str, Any], Repository | None]]:
    """Yield the repositories directly inside of another: an entry for its record, and the repository if it is there."""
    for path, recorded in sorted({**changes.submodules, **dict.fromkeys(changes.nested)}.items()):
        found = _repository_in(outer, path, seconds)
        repository = found if isinstance(found, Repository) else None
        commit = repository.commit if repository else None
        # `recorded` is None for a nested repository, which the outer commit does not know.
        states = [found] if isinstance(found, str) else [] if recorded else ["not a submodule"]
        if repository and recorded not in (None, commit):
            states.append("other commit")
        yield {"path": path, "commit": commit, "recorded_commit": recorded, "state": ", ".join(states)}, repository


def _repository_in(outer: Repository, path: str, seconds: float) -> Repository | str:
    """Return the repository in a folder, or why it cannot be recorded."""
    folder = outer.root / path
    # In a folder without a .git of its own, git would find the outer repository.
    if folder.is_symlink() or not os.path.lexists(folder / ".git"):
        return NOT_CHECKED_OUT
    try:
        found = find_repository(folder, seconds)
    except GitTrouble as trouble:
        return trouble.what
    if not os.path.samefile(found.root, folder):
        return "its files are elsewhere"
    return found if found.common_folder != outer.common_folder else "another working tree of this repository"
