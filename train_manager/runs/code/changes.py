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

SUBMODULE: Final = "160000"
_LISTED: Final = re.compile(rb"(\S) (\d+) ([0-9a-f]+) \d\t([^\0]*)\0")
_DIFFERENCE: Final = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) (\w)\d*\0([^\0]*)\0")


@final
@dataclass(frozen=True)
class Committed:
    """A file as the commit has it."""

    path: str
    mode: str
    blob: str


@final
@dataclass
class Changes:
    """What differs from the commit, by names.

    Attributes:
        doubtful: files of the commit that may differ.
        gone: files of the commit that are not there any more.
        new: files that are not in the commit, and that nothing ignores.
        submodules: those of the commit, with the commit that it has of each.
        nested: folders with repositories of their own that are not submodules of the commit.
        not_checked_out: files of the commit that a sparse checkout leaves out.
        attribute_files: those that are staged or in the commit.
        pointers: hash and size of what LFS keeps elsewhere, by the name of its file.
        lfs: files that are what their pointers say.
        warnings: what could not be looked at.
        encrypted: files whose filter keeps them secret in the repository, and its name.
    """

    doubtful: list[Committed] = field(default_factory=list)
    gone: list[Committed] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    submodules: dict[str, str] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)
    not_checked_out: list[str] = field(default_factory=list)
    attribute_files: list[str] = field(default_factory=list)
    pointers: dict[str, tuple[str, int]] = field(default_factory=dict)
    lfs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    encrypted: dict[str, str] = field(default_factory=dict)


def find_changes(room: CleanRoom) -> Changes:
    """Return what differs between the files of a repository and its commit."""
    found = Changes()
    staged = _make_index_the_commit(room, found)
    if room.repository.commit is not None:
        _compare(room, found)
    others = _others(room, found)
    root = os.fspath(room.repository.root)
    found.nested = [name.rstrip("/") for name in others if name.endswith("/") and name[:-1] not in found.submodules]
    plain = {name for name in others if not name.endswith("/")}
    forced = {name for name in staged if is_there(root, name)}  # staged although .gitignore names them
    found.new = sorted(plain | forced, key=os.fsencode)
    return found


def _others(room: CleanRoom, found: Changes) -> list[str]:
    status, output, complaints = room.git.answer("ls-files", "-z", "--others", "--exclude-standard")
    lines = os.fsdecode(complaints).splitlines()
    if status != 0:
        raise GitTrouble(f"git ls-files failed: {first_line(complaints)}")
    found.warnings += [line.removeprefix("warning: ") for line in lines if line.startswith("warning: could not open")]
    return [os.fsdecode(name) for name in output.split(b"\0")[:-1]]


def committed_files(room: CleanRoom) -> list[str]:
    """Return the names of all files of the commit, once ``find_changes`` has prepared the room."""
    return [os.fsdecode(name) for name in _listed(room, "--cached")]


def is_there(root: str, path: str) -> bool:
    """Return whether a file or a link is there, by real folders only."""
    parts = path.split("/")
    parents = (os.path.join(root, *parts[:count]) for count in range(1, len(parts)))
    if any(os.path.islink(parent) for parent in parents):
        return False
    full = os.path.join(root, path)
    return os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full))


def _make_index_the_commit(room: CleanRoom, found: Changes) -> list[str]:
    """Leave in the index what the commit has, with its times; return what was staged besides."""
    try:
        entries = _entries(room)
    except GitTrouble:  # damaged, or of a newer git: without it every file is compared by its content
        (room.folder / "index").unlink(missing_ok=True)
        entries = []
    found.attribute_files = [os.fsdecode(name) for *_, name in entries if name.endswith(b".gitattributes")]
    if room.repository.commit is None:
        _remove(room, [name for _, _, _, name in entries])
        return [os.fsdecode(name) for _, mode, _, name in entries if mode != SUBMODULE]
    _unhide(room, entries, found)
    links = {name: blob for _, mode, blob, name in entries if mode == SUBMODULE}
    differences = list(_differences(room, "diff-index", "--cached", room.repository.commit))
    for old, _, blob, _, name in differences:
        links.pop(name, None)
        if old == SUBMODULE:
            links[name] = blob
    if differences:
        room.git.run("read-tree", "--reset", room.repository.commit)
    found.submodules = {os.fsdecode(name): blob for name, blob in sorted(links.items())}
    _remove(room, list(links))  # a submodule is a record of its own; here its folder is that of another repository
    return _staged_besides(room, differences)


def _staged_besides(room: CleanRoom, differences: list[tuple[str, str, str, str, bytes]]) -> list[str]:
    added = {name for _, new, _, kind, name in differences if kind in "AU" and new != SUBMODULE}
    if any(kind == "U" for *_, kind, _ in differences):
        added -= set(_listed(room, "--cached"))
    return [os.fsdecode(name) for name in sorted(added)]


def _entries(room: CleanRoom) -> list[tuple[str, str, str, bytes]]:
    output = room.git.run("ls-files", "-s", "-v", "-z")
    return [(tag.decode(), mode.decode(), blob.decode(), name) for tag, mode, blob, name in _LISTED.findall(output)]


def _unhide(room: CleanRoom, entries: list[tuple[str, str, str, bytes]], found: Changes) -> None:
    """Look at files too that git was told to assume unchanged, or to leave out."""
    assumed = [name for tag, _, _, name in entries if tag.islower()]
    skipped = [name for tag, _, _, name in entries if tag in "Ss"]
    if assumed:
        room.git.run("update-index", "--no-assume-unchanged", "-z", "--stdin", feed=_joined(assumed))
    if skipped:
        room.git.run("update-index", "--no-skip-worktree", "-z", "--stdin", feed=_joined(skipped))
    root = os.fspath(room.repository.root)
    found.not_checked_out = [name for name in map(os.fsdecode, skipped) if not is_there(root, name)]


def _remove(room: CleanRoom, names: list[bytes]) -> None:
    if names:
        room.git.run("update-index", "--force-remove", "-z", "--stdin", feed=_joined(names))


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


def _listed(room: CleanRoom, *arguments: str) -> list[bytes]:
    return room.git.run("ls-files", "-z", *arguments).split(b"\0")[:-1]


def _joined(names: list[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)
