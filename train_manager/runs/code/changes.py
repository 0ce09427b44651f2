"""Which files of a working tree differ from its commit, and which are new.

Git names the files that may differ (by their times and sizes, as ``git status`` does); their content decides. What is
staged does not count: the files are what ran.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

from train_manager.runs.code.clean_room import CleanRoom
from train_manager.runs.code.git_commands import GitTrouble, first_line

# The mode that git gives an entry which is a commit of another repository.
SUBMODULE: Final = "160000"
# A line of `git ls-files -s -v -z`: tag, mode, blob, stage and name.
_LISTED: Final = re.compile(rb"(\S) (\d+) ([0-9a-f]+) \d\t([^\0]*)\0")
# A line of `git diff-index --raw -z`: both modes, both blobs, the kind of the difference and the name.
_DIFFERENCE: Final = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) (\w)\d*\0([^\0]*)\0")


@final
@dataclass(frozen=True)
class Committed:
    """A file as the commit has it."""

    path: str
    mode: str  # the octal number that git writes
    blob: str  # the hash of its content


@final
@dataclass
class Changes:
    """What differs from the commit, by names."""

    doubtful: list[Committed] = field(default_factory=list)  # files of the commit whose content must be compared
    gone: list[Committed] = field(default_factory=list)  # files of the commit that the working tree lacks
    new: list[str] = field(default_factory=list)  # files outside of the commit that no .gitignore names
    submodules: dict[str, str] = field(default_factory=dict)  # the commit of each, by its path
    # folders with a repository of their own, which the commit does not list as submodules
    nested: list[str] = field(default_factory=list)
    not_checked_out: list[str] = field(default_factory=list)  # files that a sparse checkout leaves out
    attribute_files: list[str] = field(default_factory=list)  # paths of .gitattributes, staged or committed
    # The hash and the size of the content that LFS keeps elsewhere, by the path of the file.
    pointers: dict[str, tuple[str, int]] = field(default_factory=dict)
    lfs: list[str] = field(default_factory=list)  # files with the content that their LFS pointers name
    warnings: list[str] = field(default_factory=list)  # folders that git could not open
    # The name of the filter that encrypts a file in the repository, by the path of the file.
    encrypted: dict[str, str] = field(default_factory=dict)


def find_changes(room: CleanRoom) -> Changes:
    """Return the changes of the files of a repository since its commit."""
    found = Changes()
    # The index must equal the commit before the files are compared: `git diff-files` compares with the index.
    staged = _make_index_the_commit(room, found)
    if room.repository.commit is not None:
        _compare(room, found)
    others = _others(room, found)
    root = os.fspath(room.repository.root)
    # `git ls-files --others` ends the name of a nested repository with a slash, and lists none of its files.
    found.nested = [name.rstrip("/") for name in others if name.endswith("/") and name[:-1] not in found.submodules]
    plain = {name for name in others if not name.endswith("/")}
    forced = {name for name in staged if is_there(root, name)}  # `git add --force` stages ignored files
    found.new = sorted(plain | forced, key=os.fsencode)
    return found


def _others(room: CleanRoom, found: Changes) -> list[str]:
    status, output, complaints = room.git.answer("ls-files", "-z", "--others", "--exclude-standard")
    lines = os.fsdecode(complaints).splitlines()
    if status != 0:
        raise GitTrouble(f"git ls-files failed: {first_line(complaints)}")
    # A folder that git may not open makes a warning only: the record says so, and the other files are taken.
    found.warnings += [line.removeprefix("warning: ") for line in lines if line.startswith("warning: could not open")]
    return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def committed_files(room: CleanRoom) -> list[str]:
    """Return the names of all files of the commit, once ``find_changes`` has prepared the room."""
    return [os.fsdecode(name) for name in _list_files(room, "--cached")]


def is_there(root: str, path: str) -> bool:
    """Return whether a file or a link is there, by real folders only."""
    parts = path.split("/")
    parents = (os.path.join(root, *parts[:count]) for count in range(1, len(parts)))
    if any(os.path.islink(parent) for parent in parents):
        return False
    full = os.path.join(root, path)
    return os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full))


def _make_index_the_commit(room: CleanRoom, found: Changes) -> list[str]:
    """Make the index equal to the commit, with the times of files; return the names that were staged besides."""
    try:
        entries = _entries(room)
    except GitTrouble:
        # The index is damaged, or written by a newer git. Without an index git compares every file by its content.
        (room.folder / "index").unlink(missing_ok=True)
        entries = []
    found.attribute_files = [os.fsdecode(name) for *_, name in entries if name.endswith(b".gitattributes")]
    if room.repository.commit is None:
        # A repository before its first commit: every staged file counts as new.
        _remove(room, [name for _, _, _, name in entries])
        return [os.fsdecode(name) for _, mode, _, name in entries if mode != SUBMODULE]
    _unhide(room, entries, found)
    # The submodules as staged; then the differences put the commits back that the commit itself has.
    links = {name: blob for _, mode, blob, name in entries if mode == SUBMODULE}
    differences = list(_differences(room, "diff-index", "--cached", room.repository.commit))
    for old, _, blob, _, name in differences:
        links.pop(name, None)
        if old == SUBMODULE:
            links[name] = blob
    if differences:
        # `read-tree` keeps the times of the entries that do not change, so that their files need not be read.
        room.git.run("read-tree", "--reset", room.repository.commit)
    found.submodules = {os.fsdecode(name): blob for name, blob in sorted(links.items())}
    _remove(room, list(links))  # a submodule has an entry of its own in the record
    return _staged_besides(room, differences)


def _staged_besides(room: CleanRoom, differences: list[tuple[str, str, str, str, bytes]]) -> list[str]:
    # "A" is an added file, "U" one with an unresolved merge, which may or may not be in the commit.
    added = {name for _, new, _, kind, name in differences if kind in "AU" and new != SUBMODULE}
    if any(kind == "U" for *_, kind, _ in differences):
        added -= set(_list_files(room, "--cached"))
    return [os.fsdecode(name) for name in sorted(added)]


def _entries(room: CleanRoom) -> list[tuple[str, str, str, bytes]]:
    output = room.git.run("ls-files", "-s", "-v", "-z")
    return [(tag.decode(), mode.decode(), blob.decode(), name) for tag, mode, blob, name in _LISTED.findall(output)]


def _unhide(room: CleanRoom, entries: list[tuple[str, str, str, bytes]], found: Changes) -> None:
    """Make git compare the files that a user has marked as unchanged or as left out."""
    # `git ls-files -v` writes a lower-case tag for --assume-unchanged, and S for --skip-worktree.
    assumed = [name for tag, _, _, name in entries if tag.islower()]
    skipped = [name for tag, _, _, name in entries if tag in "Ss"]
    if assumed:
        room.git.run("update-index", "--no-assume-unchanged", "-z", "--stdin", feed=_join_names(assumed))
    if skipped:
        room.git.run("update-index", "--no-skip-worktree", "-z", "--stdin", feed=_join_names(skipped))
    root = os.fspath(room.repository.root)
    # A file that is marked as left out but lies there all the same may have been run: it is compared.
    found.not_checked_out = [name for name in map(os.fsdecode, skipped) if not is_there(root, name)]


def _remove(room: CleanRoom, names: list[bytes]) -> None:
    if names:
        room.git.run("update-index", "--force-remove", "-z", "--stdin", feed=_join_names(names))


def _compare(room: CleanRoom, found: Changes) -> None:
    left_out = {os.fsencode(name) for name in found.not_checked_out}
    for mode, _, blob, kind, name in _differences(room, "diff-files"):
        if name not in left_out:
            (found.gone if kind == "D" else found.doubtful).append(Committed(os.fsdecode(name), mode, blob))


def _differences(room: CleanRoom, *command: str) -> Iterator[tuple[str, str, str, str, bytes]]:
    name, *arguments = command
    output = room.git.run(name, "--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=dirty", *arguments)
    for old, new, blob, _, kind, path in _DIFFERENCE.findall(output):
        yield old.decode(), new.decode(), blob.decode(), kind.decode(), path


def _list_files(room: CleanRoom, *arguments: str) -> list[bytes]:
    return room.git.run("ls-files", "-z", *arguments).split(b"\0")[:-1]


def _join_names(names: list[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)
