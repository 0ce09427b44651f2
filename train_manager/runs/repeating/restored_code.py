"""The code of a recorded run, in a folder of its own and in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from train_manager.runs.code.restore import restore_code
from train_manager.runs.record.command import folder_of
from train_manager.runs.repeating.paths import Moved
from train_manager.runs.repeating.run_to_repeat import RunToRepeat
from train_manager.telling.errors import InputError


def place_of_copy(run: RunToRepeat, into: Path) -> Moved:
    """Return where the code of a run will be in a new folder."""
    old = run.repository
    return Moved(folder_of(run.entry), into) if old is None else Moved(old, into / (old.name or "code"))


def restored_code(run: RunToRepeat, into: Path, repository: Path | None) -> tuple[Moved, list[str]]:
    """Put the code of a run into a new folder; return its place, and a sentence for each file that is not restored.

    Raises:
        InputError: no code was recorded, or its repository is not there.
    """
    old = run.repository
    if old is None and (run.notebook is not None or (run.entry.get("command") or {}).get("kind") == "code"):
        return place_of_copy(run, into), []  # the cells, or the text after -c in the command, are all of the code
    if old is None:
        why = (run.code or {}).get("reason") or "it had no extension CodeRecord"
        cure = "--here runs the program as it is now, and compares the metrics"
        raise InputError(f"the code of this run was not recorded: {why}", name="run", cure=cure)
    # Without a commit the record itself has all of the code, and the repository is not needed.
    if repository is None and not old.exists() and run.commit:
        cure = "give a clone of it: --repository DIR"
        raise InputError(f"the repository {old} is not there any more", name="repository", cure=cure)
    if repository is not None and not repository.is_dir():
        cure = "give the folder of a clone: --repository DIR"
        raise InputError(f"there is no folder {repository}", name="repository", cure=cure)
    restored = restore_code(run.train_dir, run.entry["id"], into, repository=repository)
    return Moved(old, restored.root), list(restored.problems)


def link_into(moved: Moved, links: Sequence[Path], repository: Path | None = None) -> None:
    """Put links into the copy to files of the repository that are not in its record, such as data that git ignores.

    If the copy has the folder too, the files that it lacks in it are linked.

    Args:
        moved: the repository as it was recorded, and its copy.
        links: paths in the repository.
        repository: the folder of the repository now; None if it did not move.

    Raises:
        InputError: a path is not of the repository, is not there, or is in the record.
    """
    root = Path(os.path.abspath(repository or moved.old))
    for link in links:
        old = Path(os.path.normpath(root / link))
        if not old.is_relative_to(root) or not old.exists():
            what = f"{link} is not in the repository {root}"
            raise InputError(what, name="link", cure="give a path in it, relative to its folder: --link data")
        if not _link(old, moved.new / old.relative_to(root)):
            raise InputError(f"{link} is in the record of the code", name="link", cure="leave it out: it is there")


def _link(old: Path, new: Path) -> bool:
    """Link a file or a folder, or the missing files of a folder that is there; return whether a link was made."""
    if new.is_dir() and not new.is_symlink() and old.is_dir():
        # A list, because `any` of a generator would stop at the first link.
        linked = [_link(one, new / one.name) for one in old.iterdir() if one.name != ".git"]
        return any(linked)
    if new.exists() or new.is_symlink():
        return False
    new.parent.mkdir(parents=True, exist_ok=True)
    new.symlink_to(old)
    return True
