"""The working tree of a repository beside its commit: which files may differ, and which are new.

Git answers by the times in the index, without a look into most files. What it does not see this way is added here:
files that a conversion has changed as they were checked out, files that it was told to skip, files behind links.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, final

from train_manager.runs.code.facts import Repository
from train_manager.runs.code.git import Git
from train_manager.runs.code.git_folder import is_linked, read_small
from train_manager.runs.code.store import blob_of

_SUBMODULE: Final = "160000"
# A line of `git ls-tree -r -z -l`: mode, kind, blob, size (no number if a partial clone lacks the blob), and name.
_COMMITTED: Final = re.compile(rb"(\d+) \w+ ([0-9a-f]+) +(\S+)\t([^\0]*)\0")
# Attributes that may make other bytes of the same number; line ends always change the size.
_CONVERTING: Final = ("filter", "ident", "working-tree-encoding")
# Names of filters such as git-crypt and sops: their files are plain text here and encrypted in the repository.
_ENCRYPTS: Final = re.compile(r"crypt|secret|sops|vault|\bage\b|gpg", re.IGNORECASE)


class Committed(NamedTuple):
    """A file as the commit has it."""

    mode: str
    blob: str
    size: int | None  # None if a partial clone lacks the blob


ABSENT: Final = Committed("", "", 0)  # of a file that the commit does not have


@final
@dataclass(frozen=True)
class WorkingTree:
    """The files of a folder; without a repository, nothing is known of them."""

    committed: Mapping[str, Committed] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()  # files of the commit that may differ from it
    new: frozenset[str] = frozenset()  # files that the commit does not have and nothing ignores
    gone: frozenset[str] = frozenset()  # files of the commit whose folder is a link now: git would see other files
    filters: Mapping[str, str] = field(default_factory=dict)  # of files that are encrypted in the repository
    submodules: Mapping[str, str] = field(default_factory=dict)  # the commit of each, by its path
    nested: frozenset[str] = frozenset()  # folders with a repository of their own, which are not submodules


def look_at(repository: Repository, git: Git, most_bytes: int) -> WorkingTree:
    """Return what may differ from the commit.

    Args:
        repository: whose files they are.
        git: in a git folder of our own over the files; its index becomes that of the commit.
        most_bytes: a larger file is compared by its size alone where a conversion may have kept it.
    """
    assert git.git_folder is not None
    root, index = repository.root, git.git_folder / "index"
    _copy_index(repository.git_folder / "index", git.git_folder)
    # Tags: S for --skip-worktree, a letter in lower case for --assume-unchanged.
    tags = {name[2:]: name[0] for name in names_in(git.run("ls-files", "-v", "-z"))}
    flagged = {name for name, tag in tags.items() if tag == "S" or tag.islower()}
    # A file that a sparse checkout leaves out is as in the commit; if it lies there all the same, it may have run.
    absent = {name for name in flagged if tags[name] in "Ss" and not os.path.lexists(root / name)}
    # What is staged does not count: the files are what ran. The times of entries that do not change stay.
    git.run("read-tree", *(("--reset", repository.commit) if repository.commit else ("--empty",)))
    committed, submodules = _list_commit(git, repository.commit)
    # Each submodule has an entry of its own in the record.
    git.run("update-index", "--force-remove", "-z", "--stdin", feed=joined(submodules))
    modified = names_in(git.run("ls-files", "-m", "-z"))
    # What is ignored, and which attributes count, is asked in the repository itself; neither question runs a program.
    asked = repository.git.given(GIT_INDEX_FILE=os.fspath(index))
    others = names_in(asked.run("ls-files", "-o", "-z", "--exclude-standard", "--exclude=__pycache__/"))
    linked = {folder for folder in map(os.path.dirname, {*committed, *tags}) if is_linked(root, folder)}
    gone = {name for name in committed if os.path.dirname(name) in linked}
    # What is staged and not committed is new, also if git ignores it: `git add --force` stages such files.
    new = {name for name in {*others, *tags} if not name.endswith("/") and os.path.dirname(name) not in linked}
    new -= committed.keys()
    attributes = _attributes(asked, {*committed, *new})
    converted = _find_converted(root, committed, attributes, most_bytes)
    return WorkingTree(
        committed,
        frozenset({*modified, *flagged, *converted, *gone} & committed.keys() - absent),
        frozenset(new),
        frozenset(gone),
        {name: text for name, text in attributes.items() if _ENCRYPTS.search(text)},
        submodules,
        frozenset(name[:-1] for name in others if name.endswith("/")) - submodules.keys(),
    )


def _copy_index(source: Path, folder: Path) -> None:
    # Where the index is split, the shared index has its greater part.
    for path in (source, *source.parent.glob("sharedindex.*")):
        if path.is_file():  # not a link to a device, of which a copy would not end
            with contextlib.suppress(FileNotFoundError):
                # copy2 keeps the time: git compares an entry by content if it changed as late as the index.
                shutil.copy2(path, folder / path.name)


def _list_commit(git: Git, commit: str | None) -> tuple[dict[str, Committed], dict[str, str]]:
    """Return the files of a commit, and the commits of its submodules."""
    files, submodules = {}, {}
    listed = git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit) if commit else b""
    for *found, name in _COMMITTED.findall(listed):
        mode, blob, size = (text.decode() for text in found)
        if mode == _SUBMODULE:
            submodules[os.fsdecode(name)] = blob
        else:
            files[os.fsdecode(name)] = Committed(mode, blob, int(size) if size.isdigit() else None)
    return files, submodules


def _attributes(git: Git, names: Iterable[str]) -> dict[str, str]:
    """Return the files that a filter, a keyword or an encoding may convert; with the name of the filter."""
    answers = git.run("check-attr", "-z", "--stdin", *_CONVERTING, feed=joined(names)).split(b"\0")
    found: dict[str, str] = {}
    # Triples of path, attribute and value.
    for path, name, value in zip(answers[0::3], answers[1::3], answers[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            text = os.fsdecode(value) if name == b"filter" else ""
            found[os.fsdecode(path)] = found.get(os.fsdecode(path), "") or text
    return found


def _find_converted(
    root: Path, committed: Mapping[str, Committed], attributes: Mapping[str, str], most_bytes: int
) -> Iterator[str]:
    """Yield the files whose bytes are others than those of the commit although git calls them unchanged.

    Line ends, keywords, encodings and filters make other bytes of a file as it is checked out. Its size mostly differs
    from that of its blob. Where its attributes may keep the size, it is read and compared.
    """
    for path, file in committed.items():
        with contextlib.suppress(OSError):
            size = os.lstat(root / path).st_size
            is_other = size != file.size
            if not is_other and path in attributes and size <= most_bytes:
                object_format = "sha1" if len(file.blob) == 40 else "sha256"
                is_other = blob_of(read_small(root / path, size + 1), object_format) != file.blob
            if is_other:
                yield path


def joined(names: Iterable[str]) -> bytes:
    """Return names as git reads them: each with a NUL behind it."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def names_in(output: bytes) -> list[str]:
    """Return the names that git lists with a NUL behind each."""
    return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]
