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
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from train_manager.runs.code.git import NO_CONFIGURATION, Git

# Attributes that switch off every conversion; info/attributes outranks all .gitattributes of the files.
AS_THEY_ARE: Final = b"* -text !eol -ident -filter !working-tree-encoding !diff !whitespace !merge\n"
_PREFIX: Final = "train-manager-git-"
_A_DAY: Final = 86_400.0


@contextlib.contextmanager
def git_folder(
    files: Path | None = None, *, object_format: str = "sha1", settings: Mapping[str, str] = {}, seconds: float = 10.0
) -> Iterator[tuple[Git, Path]]:
    """Give git in a temporary folder of our own, and the folder, which is removed in the end.

    Args:
        files: the working tree that git looks at; None for a comparison of what is in stores.
        object_format: the hash function of the objects, sha1 or sha256.
        settings: of the section ``core``.
        seconds: the limit of each command.
    """
    remove_leftovers(Path(tempfile.gettempdir()), f"{_PREFIX}*")
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        make_git_folder(folder, object_format=object_format, settings=settings)
        yield git_in(folder, files or folder, seconds=seconds), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def git_in(git_folder: Path, files: Path, *, seconds: float = 10.0) -> Git:
    """Return git for a git folder of our own and the files that it looks at."""
    places = {"GIT_DIR": os.fspath(git_folder), "GIT_WORK_TREE": os.fspath(files)}
    return Git(files, environment={**NO_CONFIGURATION, **places}, seconds=seconds)


def make_git_folder(folder: Path, *, object_format: str = "sha1", settings: Mapping[str, str] = {}) -> None:
    """Make a git folder without a commit that runs and converts nothing."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    # Git asks for version 1 of the format as soon as the config has a section [extensions].
    core = {
        "repositoryformatversion": "0" if object_format == "sha1" else "1",
        "bare": "false",
        "logallrefupdates": "false",
        "autocrlf": "false",
        "safecrlf": "false",
        **settings,
    }
    text = "[core]\n" + "".join(f"\t{name} = {quote(value)}\n" for name, value in core.items())
    if object_format != "sha1":
        text += f"[extensions]\n\tobjectformat = {object_format}\n"
    (folder / "config").write_bytes(os.fsencode(text))
    (folder / "info" / "attributes").write_bytes(AS_THEY_ARE)


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


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Delete the temporary files and folders of killed processes; what is younger than a day may still be in use."""
    for leftover in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - leftover.lstat().st_mtime > _A_DAY:
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)  # rmtree refuses links and folders of other users
                else:
                    leftover.unlink()
