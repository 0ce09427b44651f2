"""Real repositories for the tests, and their files as they are on disk."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train_manager.runs.code.restore import restore_code

AUTHOR = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com"}
COMMITTER = {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com"}
DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
RUN = "0123456789abcdef"


def git(folder: Path, *arguments: str | bytes, feed: bytes | None = None, check: bool = True) -> bytes:
    """Run git as a user would, without the settings of this machine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        input=feed,
        stdin=subprocess.DEVNULL if feed is None else None,
        check=check,
        capture_output=True,
        env={**environment, **AUTHOR, **COMMITTER, **DATES, **ALONE},
    ).stdout


def repository(folder: Path, files: dict[str, bytes] | None = None, *options: str) -> Path:
    """Make a repository with a commit of some files: without options, a copy of one that is made once."""
    if options:
        return _made(folder, files or {}, *options)
    shutil.copytree(_original(frozenset((files or {}).items())), folder, symlinks=True)
    if files:
        git(folder, "update-index", "--refresh")  # else git has to look into each file, as its times are others
    return folder


@functools.cache
def _original(files: frozenset[tuple[str, bytes]]) -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return _made(folder / "original", dict(files))


def _made(folder: Path, files: dict[str, bytes], *options: str) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", *options)
    if files:
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "first")
    return folder


def write(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files, with the folders that they need."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All files and links below a folder, but for git folders: kind (with the mode bit that git keeps) and content."""
    found: dict[str, tuple[str, bytes]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in [*files, *links]:
            path = os.path.join(place, name)
            if name != ".git":
                found[os.path.relpath(path, folder)] = _describe(path)
    return found


def _describe(path: str) -> tuple[str, bytes]:
    if os.path.islink(path):
        return "link", os.fsencode(os.readlink(path))
    mode = "program" if os.stat(path).st_mode & 0o100 else "file"
    return mode, Path(path).read_bytes()


def kept_in(entry: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """How each file of a record is kept: stored, deleted or left out, and why it is left out."""
    kept = {file["path"]: ("deleted" if file["status"] == "deleted" else "stored", None) for file in entry["files"]}
    return {**kept, **{file["path"]: ("left out", file["why"]) for file in entry["left_out"]}}


def contents_of(train_dir: Path) -> dict[str, bytes]:
    """The contents that the store of a train_dir has, by their names."""
    store = train_dir / "code" / "git"
    if not store.exists():
        return {}
    listed = git(store, "cat-file", "--batch-all-objects", "--batch-check").decode().splitlines()
    names = [line.split()[0] for line in listed if " blob " in line]
    return {name: git(store, "cat-file", "blob", name) for name in names}


def an_entry(**changes: Any) -> dict[str, Any]:
    """The entry of a repository without changes, as a code record has it."""
    usual = {"path": "/r", "inside": None, "commit": "0123456789abcdef" * 2 + "01234567", "branch": "main"}
    more: dict[str, Any] = {
        "remotes": {},
        "state": [],
        "format": "sha1",
        "tree": None,
        "files": [],
        "left_out": [],
    }
    return {**usual, **more, "shallow": False, "pushed": None, "submodules": {}, **changes}


def a_file(path: str, status: str = "modified", mode: str = "100644") -> dict[str, Any]:
    """The entry of a changed file, as a code record has it."""
    return {"path": path, "status": status, "mode": mode, "blob": "0" * 40, "size": 1}


def head(root: Path) -> str:
    """The commit that a repository is on."""
    return git(root, "rev-parse", "HEAD").decode().strip()


def put_back(root: Path) -> Path:
    """Where the code of the record in ``runs``, beside the repository, is put back without a problem."""
    restored = restore_code(root.parent / "runs", RUN, root.parent / "again")
    assert restored.problems == []
    return restored.root


def assert_put_back(root: Path) -> Path:
    """Require that the code that is put back is that of the repository."""
    again = put_back(root)
    assert tree(again) == tree(root)
    return again
