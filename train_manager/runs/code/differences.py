"""Where the code of two runs differs: which files, and in them which lines.

Both runs have a tree of their files, so git compares these. The contents of changed files are in the stores; of a file
as its commit has it, the repository is asked, if it is still there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code.facts import find_repository
from train_manager.runs.code.git import Git, GitTrouble, sizes_of
from train_manager.runs.code.git_folder import git_folder, reading
from train_manager.runs.code.left_out import OF_A_TRAINING
from train_manager.runs.code.record import notebook_file
from train_manager.runs.code.snapshot import LINK
from train_manager.runs.code.store import require_own_objects, store_of

MOST_BYTES: Final = 4_000_000  # larger files are not compared by lines
MOST_FILES: Final = 500  # whose lines are compared
MOST_SHOWN: Final = 1000  # lines of one side of a change
NOTEBOOK: Final = "cells of the notebook"
_OPTIONS: Final = ("--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--no-prefix", "-U0")
# A line of `git diff-tree --raw -z`: both modes, both blobs, the kind of the difference and the name.
_DIFFERENCE: Final = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) \w\0([^\0]*)\0")
_HUNK: Final = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+.*\n", re.MULTILINE)
_NO_NEWLINE: Final = re.compile(rb"\n\\ .*")  # git says so below the last line of a file

Record = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Change:
    """A place of a file at which two versions differ.

    Attributes:
        line: its first line in the first version, counted from 1.
        removed: the lines of the first version.
        added: the lines of the second version.
    """

    line: int
    removed: tuple[str, ...]
    added: tuple[str, ...]

    def __str__(self) -> str:
        shown = [*(f"- {text}" for text in self.removed), *(f"+ {text}" for text in self.added)]
        return " ".join([f"line {self.line}:", *(text.strip() for text in shown)])


@final
@dataclass(frozen=True)
class FileDifference:
    """A file that differs between two runs.

    Attributes:
        path: its path in the repository; of a submodule or another repository, with its name before it.
        what: in words: "changed", "only in the first", "only in the second", "binary: 12 and 14 bytes".
        changes: the places at which the lines differ, if they are known.
    """

    path: str
    what: str
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        """Return the first place in a line: ``train.py line 12: - lr=0.1 + lr=0.2``."""
        first = f"{self.path} {self.changes[0]}" if self.changes else f"{self.path}: {self.what}"
        more = len(self.changes) - 1
        return f"{first} (and {more} more {'place' if more == 1 else 'places'})" if more > 0 else first


@final
@dataclass(frozen=True)
class CodeDifference:
    """How the code of two runs differs.

    Attributes:
        files: the files that differ.
        problems: what could not be compared, and why.
    """

    files: tuple[FileDifference, ...]
    problems: tuple[str, ...] = ()


def code_differences(first: tuple[Path, Record], second: tuple[Path, Record]) -> CodeDifference:
    """Return which files differ between two code records.

    Args:
        first: the train_dir, and the record in it.
        second: those of the other run.
    """
    one, other = ({item["inside"] or "": item for item in record["repositories"]} for _, record in (first, second))
    found: list[FileDifference] = []
    problems: list[str] = []
    for place in dict.fromkeys([*one, *other]):
        if place not in one or place not in other:
            problems.append(f"{place or 'the repository'} is recorded of the {_order(place in one)} run only")
            continue
        pair = _Pair((first[0], second[0]), (one[place], other[place]))
        found += [replace(file, path=f"{place}/{file.path}" if place else file.path) for file in pair.files()]
        problems += pair.problems
    try:
        found += _of_notebooks(first, second)
    except GitTrouble as trouble:
        problems.append(trouble.what)
    return CodeDifference(tuple(found), tuple(dict.fromkeys(problems)))


@final
class _Pair:
    """A repository as it was in two runs.

    Args:
        train_dirs: of the runs.
        entries: of the repository, in their records.
    """

    def __init__(self, train_dirs: tuple[Path, Path], entries: tuple[Record, Record]) -> None:
        self._entries = entries
        self._stores = [
            store_of(*pair) for pair in zip(train_dirs, (entry["format"] for entry in entries), strict=True)
        ]
        self._sides = [{file["path"]: file for file in entry["files"]} for entry in entries]
        self._left_out = [
            {file["path"]: file for file in entry["left_out"] if file["why"] != OF_A_TRAINING} for entry in entries
        ]
        self.problems: list[str] = []

    def files(self) -> Iterator[FileDifference]:
        """Yield each file that differs, and note what could not be compared."""
        trees = [entry["tree"] for entry in self._entries]
        found: dict[str, FileDifference] = {}
        if None in trees or self._entries[0]["format"] != self._entries[1]["format"]:
            # Of two copies on one commit the records already say that they are not whole.
            if trees != [None, None] or self._entries[0]["commit"] != self._entries[1]["commit"]:
                self.problems.append(
                    "git has not stored the files of both runs alike, so only changed files are compared"
                )
            found = dict(self._by_names())
        else:
            try:
                for store in self._stores:
                    require_own_objects(store)
                with git_folder(object_format=self._entries[0]["format"]) as git:
                    found = self._by_trees(git, *trees)
            except GitTrouble as trouble:
                self.problems.append(f"the files are not compared: {trouble.what}")
        for path in {*self._left_out[0], *self._left_out[1]}:
            found.pop(path, None)
        found |= self._of_left_out()
        yield from (found[path] for path in sorted(found))

    def _by_names(self) -> Iterator[tuple[str, FileDifference]]:
        for path in {*self._sides[0], *self._sides[1]}:
            one, other = (side.get(path, {}) for side in self._sides)
            if (one.get("mode"), one.get("blob")) != (other.get("mode"), other.get("blob")):
                is_in_both = bool(one) and bool(other)
                yield path, FileDifference(path, "changed" if is_in_both else f"only in the {_order(bool(one))} run")

    def _by_trees(self, git: Git, one: str, other: str) -> dict[str, FileDifference]:
        reads = reading(*(store / "objects" for store in self._stores), *self._repositories())
        output = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", one, other, changes=reads)
        listed = [
            (os.fsdecode(name), (old.decode(), new.decode()), (before.decode(), after.decode()))
            for old, new, before, after, name in _DIFFERENCE.findall(output)
        ]
        sizes = sizes_of(git, [blob for _, _, blobs in listed for blob in blobs], reads)
        found: dict[str, FileDifference] = {}
        by_line: list[str] = []
        for path, modes, blobs in listed:
            present = [mode != "000000" for mode in modes]
            links = [mode == LINK for mode in modes]
            known = [sizes.get(blob) for blob in blobs]
            if not all(present):
                what = f"only in the {_order(present[0])} run"
            elif links[0] != links[1]:
                what = f"a link in the {_order(links[0])} run, a file in the {_order(links[1])}"
            elif blobs[0] == blobs[1]:
                what = f"mode {modes[0]} and {modes[1]}"
            elif None in known:
                what = f"changed; {self._where(known.index(None))}"
            elif max(size or 0 for size in known) > MOST_BYTES or len(by_line) >= MOST_FILES:
                what = "changed; it is too large to be compared line by line"
            else:
                what = " and ".join(f"{size:,}" for size in known)  # of a binary file
                by_line.append(path)
            found[path] = FileDifference(path, what)
        if by_line:
            text = git.run("diff", *_OPTIONS, one, other, "--", *by_line, changes=reads)
            # The order of the files is that of the list.
            for path, changes in zip(by_line, _changes(text), strict=True):
                what = "changed" if changes is not None else f"binary, of {found[path].what} bytes"
                found[path] = FileDifference(path, what, changes or ())
        return found

    def _repositories(self) -> Iterator[Path]:
        # Either run's folder may still have the commits of both: runs of one repository share its objects.
        for path in dict.fromkeys(entry["path"] for entry in self._entries if entry["commit"]):
            with contextlib.suppress(GitTrouble, OSError):
                yield find_repository(Path(path)).objects

    def _where(self, side: int) -> str:
        """Say where the content of a file was that is not there any more."""
        commit, path = self._entries[side]["commit"], self._entries[side]["path"]
        if commit is None:
            return "its content is missing in the record"
        return f"its content was in commit {commit:.7} of {path}, which is not there any more"

    def _of_left_out(self) -> Iterator[tuple[str, FileDifference]]:
        """Yield the files that a record does not have; of a file that both lack, the size and its time tell."""
        for path in {*self._left_out[0], *self._left_out[1]}:
            one, other = (side.get(path) for side in self._left_out)
            if one is None or other is None:
                lacks = (other if one is None else one) or {}
                yield path, FileDifference(path, f"changed; its content was left out: {lacks['why']}")
            elif one["size"] != other["size"]:
                what = f"of {one['size']:,} and {other['size']:,} bytes; its content was left out: {one['why']}"
                yield path, FileDifference(path, what)
            elif one["time"] != other["time"]:
                self.problems.append(f"{path} is not compared, as its content was left out: {one['why']}")


def _of_notebooks(first: tuple[Path, Record], second: tuple[Path, Record]) -> Iterator[FileDifference]:
    """Yield how the cells that ran differ."""
    files = [notebook_file(*side) for side in (first, second)]
    if files[0] is None or files[1] is None:
        if files[0] is not files[1]:
            yield FileDifference(NOTEBOOK, f"only in the {_order(files[1] is None)} run")
        return
    with git_folder() as git:
        text = git.run("diff", "--no-index", *_OPTIONS, *(os.path.abspath(file) for file in files if file), fine=(0, 1))
    for changes in _changes(text):
        yield FileDifference(NOTEBOOK, "changed", changes or ())


def _changes(text: bytes) -> Iterator[tuple[Change, ...] | None]:
    """Yield the places of each file of a patch without lines around them; None for a binary file."""
    for section in re.split(rb"^diff --git .*\n", text, flags=re.MULTILINE)[1:]:
        head, *hunks = _HUNK.split(section)
        changes = []
        for line, count, body in zip(hunks[0::3], hunks[1::3], hunks[2::3], strict=True):
            # If both versions lack the newline at their end, that is not a difference.
            is_told = len(_NO_NEWLINE.findall(body)) == 1
            lines = _NO_NEWLINE.sub(b" (without a newline at the end)" if is_told else b"", body).split(b"\n")
            old, new = (_texts([line for line in lines if line[:1] == sign]) for sign in (b"-", b"+"))
            # "-5,0": no line of the first version, and 5 is the line before.
            changes.append(Change(int(line) + (count == b"0"), old, new))
        yield None if b"\nBinary files " in head else tuple(changes)


def _texts(lines: Sequence[bytes]) -> tuple[str, ...]:
    texts = [line[1:].decode(errors="backslashreplace") for line in lines[:MOST_SHOWN]]
    more = [f"(and {len(lines) - MOST_SHOWN:,} more lines)"] if len(lines) > MOST_SHOWN else []
    return (*texts, *more)


def _order(is_first: bool) -> str:
    return "first" if is_first else "second"
