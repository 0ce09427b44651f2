"""The store of a train_dir: a bare git folder with the contents that its records keep, each once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from train_manager.files.atomic import replace_file
from train_manager.files.leftovers import A_DAY, remove_leftovers
from train_manager.runs.code.git import Git, GitTrouble
from train_manager.runs.code.git_folder import make_git_folder

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


def blob_of(content: bytes, object_format: str = "sha1") -> str:
    """Return the hash that git gives a content.

    >>> blob_of(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    return hashlib.new(object_format, b"blob %d\0" % len(content) + content).hexdigest()


def make_store(store: Path, object_format: str) -> None:
    """Make a store, unless it is there.

    Raises:
        GitTrouble: something is there that leads elsewhere.
    """
    require_own_objects(store)
    remove_leftovers(store / "objects" / "pack", "tmp_*", after=A_DAY)
    if not (store / "config").exists():
        make_git_folder(store, object_format, _SETTINGS)


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


def sizes_in_store(git: Git, store: Path) -> dict[str, int]:
    """Return the sizes of all objects of a store, by their names."""
    stored = git.given(GIT_OBJECT_DIRECTORY=os.fspath(store / "objects"))
    every = ("--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objectsize)")
    found = stored.run("cat-file", *every).decode().split()
    return dict(zip(found[::2], map(int, found[1::2]), strict=True))


def pack_into_store(git: Git, store: Path, name: str) -> str:
    """Pack a tree of files into a store, let a ref keep it, and return its name.

    Args:
        git: in a git folder of our own, whose index has the files, and whose objects are all to be kept.
        store: of the train_dir.
        name: of the ref.
    """
    # Without the objects of the repository: what it has of the changed files now may be collected there tomorrow.
    tree = git.run("write-tree", "--missing-ok").decode().strip()
    assert git.git_folder is not None
    objects, packs = git.git_folder / "objects", store / "objects" / "pack"
    names = "".join(f"{path.parent.name}{path.name}\n" for path in objects.glob("??/*"))
    # `--incremental` leaves out what the store has. One thread: the training needs the others.
    options = ("--quiet", "--incremental", "--non-empty", "--threads=1", "--window=0")
    into_store = git.reading(objects).given(GIT_OBJECT_DIRECTORY=os.fspath(store / "objects"))
    into_store.run("pack-objects", *options, os.fspath(packs / "pack"), feed=names.encode())
    for pack in packs.glob("pack-*.pack"):
        pack.with_suffix(".promisor").touch()
    replace_file(store / "refs" / "runs" / name, f"{tree}\n".encode(), sync=True)
    return tree
