"""The store of a train_dir: a bare git folder with the contents that its records keep, each once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from train_manager.files.atomic import replace_file
from train_manager.runs.code.git import Git, GitTrouble
from train_manager.runs.code.git_folder import reading, remove_leftovers

CODE: Final = "code"
# Nothing is ever collected. The commits that records stand on are elsewhere, which git calls a partial clone: so
# `git gc` and `git fsck` in the store end without an error.
_CONFIG: Final = """\
[core]
	repositoryformatversion = 1
	bare = true
	fsync = all
[gc]
	auto = 0
	pruneExpire = never
[remote "repository"]
	promisor = true
[extensions]
	partialClone = repository
"""


def store_of(train_dir: Path, object_format: str = "sha1") -> Path:
    """Return the git folder of a train_dir for objects of a format."""
    return train_dir / CODE / ("git" if object_format == "sha1" else f"git-{object_format}")


def make_store(store: Path, object_format: str) -> None:
    """Make a store, unless it is there.

    Raises:
        GitTrouble: something is there that leads elsewhere.
    """
    for name in ("objects/info", "objects/pack", "refs/runs"):
        (store / name).mkdir(parents=True, exist_ok=True)
    require_own_objects(store)
    remove_leftovers(store / "objects" / "pack", "tmp_*")
    if not (store / "HEAD").exists():
        text = _CONFIG if object_format == "sha1" else f"{_CONFIG}\tobjectformat = {object_format}\n"
        replace_file(store / "config", text.encode())
        replace_file(store / "HEAD", b"ref: refs/heads/none\n")


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


def pack_into_store(git: Git, folder: Path, store: Path, name: str, tree: str) -> None:
    """Pack the objects of a git folder of our own into a store, and let a ref keep them.

    Args:
        git: in the folder.
        folder: has the objects, each in a file.
        store: of the train_dir.
        name: of the ref.
        tree: that the ref names.
    """
    objects, packs = folder / "objects", store / "objects" / "pack"
    names = [
        place[-2:] + name
        for place, _, names in os.walk(objects)
        for name in names
        if len(place) == len(str(objects)) + 3
    ]
    into_store = {"GIT_OBJECT_DIRECTORY": os.fspath(store / "objects"), **reading(objects)}
    # `--incremental` leaves out what the store has. One thread: the training needs the others.
    options = ("--quiet", "--incremental", "--non-empty", "--threads=1", "--window=0")
    git.run(
        "pack-objects", *options, os.fspath(packs / "pack"), feed="\n".join([*names, ""]).encode(), changes=into_store
    )
    for pack in packs.glob("pack-*.pack"):
        pack.with_suffix(".promisor").touch()
    replace_file(store / "refs" / "runs" / name, f"{tree}\n".encode(), sync=True)
