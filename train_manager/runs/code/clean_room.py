"""A git folder of our own over a user's files, in which no setting of the user decides which programs git runs.

The repository's own git folder can name programs (file monitors, filters, diff drivers, hooks) that git would run.
This copy has the same objects and the same index, and settings of its own; the files keep their bytes as they are,
without conversions of line ends, keywords, encodings or filters.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from train_manager.runs.code.git_commands import NO_CONFIGURATION, GitCommands
from train_manager.runs.code.repository import Repository

# Attributes that switch off every conversion; info/attributes outranks all .gitattributes of the files.
AS_THEY_ARE: Final = b"* -text !eol -ident -filter !working-tree-encoding !diff !whitespace !merge\n"
_PREFIX: Final = "train-manager-git-"
_A_DAY: Final = 86_400.0
_CACHES_OF_PYTHON: Final = b"\n__pycache__/\n"


@final
@dataclass(frozen=True)
class CleanRoom:
    """A git folder in a temporary place, over the files of a repository."""

    repository: Repository  # the repository whose files are looked at
    folder: Path  # our git folder, deleted as `clean_room` ends
    git: GitCommands  # git, pointed at `folder` and at the files

    def contents(self, blobs: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of blobs by their names, without the blobs that are missing."""
        found, start = {}, 0
        # One process for all blobs. Each answer is a line "<blob> <kind> <size>", the content and a newline.
        output = self.git.run("cat-file", "--batch", feed="".join(f"{blob}\n" for blob in blobs).encode())
        for blob in blobs:
            end = output.index(b"\n", start)
            size = output[start:end].rpartition(b" ")[2]
            start = end + 1
            if size.isdigit():  # a missing blob is answered by "<blob> missing", without a content
                found[blob] = output[start : start + int(size)]
                start += int(size) + 1
        return found


@contextlib.contextmanager
def clean_room(repository: Repository, *, seconds: float = 10.0) -> Iterator[CleanRoom]:
    """Give a git folder of our own over the files of a repository; it is removed in the end.

    Args:
        repository: whose files.
        seconds: the limit of each git command.
    """
    _remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        _furnish(folder, repository)
        yield CleanRoom(repository, folder, git_in(folder, repository.root, seconds=seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _furnish(folder: Path, user: Repository) -> None:
    lines = [
        ("bigfilethreshold", "1m"),  # larger files count as binary: the diff of a file of 50 MB takes ten seconds
        # Three properties of the user's file system; with a wrong value git would find a difference in every file.
        ("filemode", str(user.flag("core.filemode", True)).lower()),
        ("ignorecase", str(user.flag("core.ignorecase", False)).lower()),
        ("precomposeunicode", str(user.flag("core.precomposeunicode", False)).lower()),
    ]
    # The user's ignored files must not count as new, and their converted files not as changed.
    for name in ("excludesfile", "attributesfile"):
        if path := user.setting(f"core.{name}"):
            lines.append((name, quote(os.path.expanduser(path))))
    make_git_folder(folder, user, settings=lines)
    own = read_small(user.common_folder / "info" / "exclude")
    (folder / "info" / "exclude").write_bytes(own + _CACHES_OF_PYTHON)
    _copy_index(folder, user.git_folder / "index")


def _copy_index(folder: Path, source: Path) -> None:
    if not source.is_file():  # also if it is a link to a device, of which a copy would not end
        return
    with contextlib.suppress(FileNotFoundError):
        # copy2 keeps the time of the index: git compares an entry by content if it changed as late as the index.
        shutil.copy2(source, folder / "index")
        index = (folder / "index").read_bytes()
        for shared in source.parent.glob("sharedindex.*"):  # where the index is split: its greater part
            with contextlib.suppress(ValueError):  # the suffix is not a hash: a file of another program
                if bytes.fromhex(shared.suffix[1:]) in index:
                    shutil.copy2(shared, folder / shared.name)


def _remove_leftovers() -> None:
    """Delete the folders of killed processes; a folder younger than a day may still be in use."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.lstat().st_mtime > _A_DAY:
                shutil.rmtree(leftover, ignore_errors=True)  # rmtree refuses links and folders of other users


def git_in(git_folder: Path, files: Path, *, seconds: float = 10.0) -> GitCommands:
    """Return git for a git folder of our own and the files that it looks at."""
    places = {"GIT_DIR": os.fspath(git_folder), "GIT_WORK_TREE": os.fspath(files)}
    return GitCommands(files, environment={**NO_CONFIGURATION, **places}, seconds=seconds)


def make_git_folder(folder: Path, source: Repository, *, settings: list[tuple[str, str]] | None = None) -> None:
    """Make a git folder that reads the objects of a repository, has its commit, and converts nothing."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text(f"{source.commit or 'ref: refs/heads/main'}\n")
    # Git asks for version 1 of the format as soon as the config has a section [extensions].
    is_sha1 = source.object_format == "sha1"
    core = [
        ("repositoryformatversion", "0" if is_sha1 else "1"),
        ("bare", "false"),
        ("logallrefupdates", "false"),
        ("autocrlf", "false"),
        ("safecrlf", "false"),
        *(settings or []),
    ]
    text = "[core]\n" + "".join(f"\t{name} = {value}\n" for name, value in core)
    if not is_sha1:
        text += f"[extensions]\n\tobjectformat = {source.object_format}\n"
    (folder / "config").write_bytes(os.fsencode(text))
    # Git reads the objects of the repository through this file, and writes new ones into our folder only.
    (folder / "objects" / "info" / "alternates").write_bytes(
        os.fsencode(quote(os.fspath(source.common_folder / "objects"))) + b"\n"
    )
    (folder / "info" / "attributes").write_bytes(AS_THEY_ARE)
    # A shallow clone lacks the parents of some commits; without this list git would take it for damaged.
    if source.is_shallow:
        (folder / "shallow").write_bytes(read_small(source.common_folder / "shallow"))


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
