"""A git folder of our own, in which no setting of a user or of a stranger decides which programs git runs.

The git folder of a repository, and the store of a train_dir that came from elsewhere, can name programs (file monitors,
filters, diff drivers, hooks) that git would run. So git never works in one of them: it works in a folder of our own,
which reads their objects, and which leaves the bytes of files as they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from train_manager.files.atomic import replace_file, temporary_beside
from train_manager.files.leftovers import A_DAY, remove_leftovers
from train_manager.runs.code.git import Git

# Attributes that switch off every conversion; info/attributes outranks all .gitattributes of the files.
AS_THEY_ARE: Final = b"* -text !eol -ident -filter !working-tree-encoding !diff !whitespace !merge\n"
# With the user, because the folder for temporary files is that of all users of a machine, except on Windows.
NAME: Final = f"train-manager-git-{os.getuid() if hasattr(os, 'getuid') else 'own'}"


@contextlib.contextmanager
def git_folder(
    files: Path | None = None, *, object_format: str = "sha1", settings: Mapping[str, str] = {}, seconds: float = 10.0
) -> Iterator[Git]:
    """Give git with a temporary git folder of our own, which is removed in the end.

    Args:
        files: the working tree that git looks at; None for a comparison of what is in stores.
        object_format: the hash function of the objects, sha1 or sha256.
        settings: further ones, such as ``core.fsync``.
        seconds: the limit of each command.
    """
    folder = temporary_beside(Path(tempfile.gettempdir(), NAME))
    remove_leftovers(folder.parent, f".tmp-{NAME}-*", after=A_DAY)
    os.mkdir(folder, 0o700)
    try:
        make_git_folder(folder, object_format=object_format, settings=settings)
        yield Git(files or folder, git_folder=folder, seconds=seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_git_folder(folder: Path, *, object_format: str = "sha1", settings: Mapping[str, str] = {}) -> None:
    """Make a git folder without a commit that runs and converts nothing; its config is written last."""
    for name in ("objects/info", "objects/pack", "refs", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    found = {
        "core.repositoryformatversion": "1",  # which allows [extensions]
        "core.bare": "false",
        "core.logallrefupdates": "false",
        "core.autocrlf": "false",
        "core.safecrlf": "false",
        **({} if object_format == "sha1" else {"extensions.objectformat": object_format}),
        **settings,
    }
    parts = ((*name.split("."), quote(value)) for name, value in found.items())
    text = "".join(f"[{section}]\n\t{key} = {value}\n" for section, key, value in parts)
    replace_file(folder / "info" / "attributes", AS_THEY_ARE)
    replace_file(folder / "HEAD", b"ref: refs/heads/main\n")
    replace_file(folder / "config", os.fsencode(text))


def is_linked(root: Path, name: str) -> bool:
    """Return whether a link is on the way from a folder to a name below it."""
    return os.path.realpath(root / name) != os.path.normpath(os.path.join(os.path.realpath(root), name))


def reading(*objects: Path) -> dict[str, str]:
    """Return the variable that lets a command read further folders of objects; git never writes into them."""
    # Git takes these names apart at colons, unless they stand in quotes.
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(quote(os.path.abspath(folder)) for folder in objects)}


def quote(text: str) -> str:
    """Return a text as git's own files want it: in quotes, in one line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def read_small(path: Path, limit: int = 1_000_000) -> bytes:
    """Return the content of a file, or nothing if it is absent or not a plain file (a pipe would not end)."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return b""
