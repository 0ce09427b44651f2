"""The store of a train_dir: a bare git folder with the contents that its records keep, each once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from train_manager.files.atomic import replace_file
from train_manager.files.leftovers import A_DAY, remove_leftovers
from train_manager.runs.code.git import Git, GitTrouble
from train_manager.runs.code.git_folder import make_git_folder, reading

CODE: Final = "code"
# Nothing is ever collected. The commits that records stand on are elsewhere, which git calls a partial clone: so
# `git gc` and `git fsck` in the store end without an error.
_SETTINGS: Final = {
    "core.bare": "true",
    "core.fsync": "all",
    "gc.auto": "0",
    "gc.pruneExpire": "never",
    "extensions.partialClone": "repository",
}


def store_of(train_dir: Path, object_format: str = "sha1") -> Path:
    """Return the git folder of a train_dir for objects of a format."""
    return train_dir / CODE / ("git" if object_format == "sha1" else f"git-{object_format}")


def make_store(store: Path, object_format: str) -> None:
    """Make a store, unless it is there.

    Raises:
        GitTrouble: something is there that leads elsewhere.
    """
    require_own_objects(store)
    remove_leftovers(store / "objects" / "pack", "tmp_*", after=A_DAY)
    if not (store / "config").exists():
        make_git_folder(store, object_format=object_format, settings=_SETTINGS)


def require_own_objects(store: Path) -> None:
    """Refuse a store that leads to files elsewhere.

    Raises:
        GitTrouble: it has a link, or names other folders of objects.
    """
    if os.path.lexists(store / "objects" / "info" / "alternates"):
        raise GitTrouble(f"{store} names other folders of objects, in objects/info/alternates")
    inside = (os.path.join(place, name) for place, folders, files in os.walk(store) for name in (*folders, *files))
    if link := next((path for path in (os.fspath(store), *inside) if os.path.islink(path)), None):
        raise GitTrouble(f"{store} has a link, {link}")


def names_in_store(git: Git, store: Path) -> set[str]:
    """Return the names of all objects of a store."""
    every = ("--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
    return {
        *git.run("cat-file", *every, changes={"GIT_OBJECT_DIRECTORY": os.fspath(store / "objects")}).decode().split()
    }


def pack_into_store(git: Git, store: Path, name: str, tree: str) -> None:
    """Pack the objects of a git folder of our own into a store, and let a ref keep them.

    Args:
        git: in a git folder that has the objects, each in a file.
        store: of the train_dir.
        name: of the ref.
        tree: that the ref names.
    """
    assert git.git_folder is not None
    objects, packs = git.git_folder / "objects", store / "objects" / "pack"
    names = [path.parent.name + path.name for path in objects.glob("??/*")]
    into_store = {"GIT_OBJECT_DIRECTORY": os.fspath(store / "objects"), **reading(objects)}
    # `--incremental` leaves out what the store has. One thread: the training needs the others.
    options = ("--quiet", "--incremental", "--non-empty", "--threads=1", "--window=0")
    git.run(
        "pack-objects", *options, os.fspath(packs / "pack"), feed="\n".join([*names, ""]).encode(), changes=into_store
    )
    for pack in packs.glob("pack-*.pack"):
        pack.with_suffix(".promisor").touch()
    replace_file(store / "refs" / "runs" / name, f"{tree}\n".encode(), sync=True)
