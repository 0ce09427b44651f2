"""Where the code of two runs differs: which files, and in them which lines.

Both runs have a tree of their files, so git compares these. The contents of changed files are in the stores; of a file
as its commit has it, the repository is asked, if it is still there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code.facts import find_repository
from train_manager.runs.code.git import Git, GitTrouble
from train_manager.runs.code.git_folder import git_folder
from train_manager.runs.code.left_out import OF_A_TRAINING
from train_manager.runs.code.record import notebook_file
from train_manager.runs.code.store import require_own_objects, store_of

MOST_BYTES: Final = 4_000_000  # larger files are not compared by lines
MOST_FILES: Final = 500  # whose lines are compared
MOST_SHOWN: Final = 1000  # lines of one side of a change
NOTEBOOK: Final = "cells of the notebook"
LINK: Final = "120000"  # a mode of git
ABSENT_MODE: Final = "000000"
_OPTIONS: Final = ("--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--no-prefix", "-U0")
# A line of `git diff-tree --raw -z`: both modes, both blobs, the kind of the difference and the name.
_DIFFERENCE: Final = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) \w\0([^\0]*)\0")
_HUNK: Final = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+.*\n", re.MULTILINE)
_NO_NEWLINE: Final = re.compile(rb"\n\\ .*")  # git says so below the last line of a file

Record = Mapping[str, Any]


@final
@dataclass(frozen=True)
class FileChange:
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
    changes: tuple[FileChange, ...] = ()

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
@dataclass
class _Pair:
    """A repository as it was in two runs."""

    train_dirs: tuple[Path, Path]
    entries: tuple[Record, Record]  # of the repository, in the records
    problems: list[str] = field(default_factory=list)  # what could not be compared

    def files(self) -> Iterator[FileDifference]:
        """Yield each file that differs, and note what could not be compared."""
        one, other = self.entries
        found: dict[str, FileDifference] = {}
        if one["tree"] and other["tree"] and one["format"] == other["format"]:
            try:
                found = self._by_trees(one["tree"], other["tree"])
            except GitTrouble as trouble:
                self.problems.append(f"the files are not compared: {trouble.what}")
        else:
            # Of two copies on one commit the records already say that they are not whole.
            if one["tree"] or other["tree"] or one["commit"] != other["commit"]:
                what = "git has not stored the files of both runs alike, so only changed files are compared"
                self.problems.append(what)
            found = dict(self._by_names())
        for path in self._left_out():
            found.pop(path, None)
        yield from (found[path] for path in sorted(found))

    def _left_out(self) -> Iterator[str]:
        """Yield the files that a record does not have, and note them if their sizes or times differ."""
        one, other = ({file["path"]: file for file in entry["left_out"]} for entry in self.entries)
        for path, file in sorted({**one, **other}.items()):
            if file["why"] != OF_A_TRAINING:
                yield path
                if one.get(path) != other.get(path):
                    self.problems.append(f"{path} is not compared, as its content was left out: {file['why']}")

    def _by_names(self) -> Iterator[tuple[str, FileDifference]]:
        one, other = ({file["path"]: (file["mode"], file["blob"]) for file in entry["files"]} for entry in self.entries)
        for path in {*one, *other}:
            if one.get(path) != other.get(path):
                what = "changed" if path in one and path in other else f"only in the {_order(path in one)} run"
                yield path, FileDifference(path, what)

    def _by_trees(self, *trees: str) -> dict[str, FileDifference]:
        stores = [store_of(*pair) for pair in zip(self.train_dirs, self._each("format"), strict=True)]
        for store in stores:
            require_own_objects(store)
        with git_folder(object_format=self.entries[0]["format"]) as own:
            git = own.reading(*(store / "objects" for store in stores), *self._repositories())
            output = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", *trees)
            listed = [(os.fsdecode(name), *map(bytes.decode, found)) for *found, name in _DIFFERENCE.findall(output)]
            sizes = _sizes(git, [blob for *_, before, after in listed for blob in (before, after)])
            found = {
                path: self._in_words((old, new), (before, after), sizes) for path, old, new, before, after in listed
            }
            # The lines of files of which nothing else is told; the order of the patch is that of the list.
            by_line = [path for path, what in found.items() if what.startswith("binary")][:MOST_FILES]
            patch = git.run("diff", *_OPTIONS, *trees, "--", *by_line) if by_line else b""
        changes = dict(zip(by_line, _changes(patch), strict=True))
        texts = {path: ("changed", lines) for path, lines in changes.items() if lines is not None}
        return {path: FileDifference(path, *texts.get(path, (what,))) for path, what in found.items()}

    def _in_words(self, modes: tuple[str, str], blobs: tuple[str, str], sizes: Mapping[str, int]) -> str:
        """Return how a file differs, as far as its lines do not say it."""
        if ABSENT_MODE in modes:
            return f"only in the {_order(modes[1] == ABSENT_MODE)} run"
        if modes[0] != modes[1] and LINK in modes:
            return f"a link in the {_order(modes[0] == LINK)} run, a file in the {_order(modes[1] == LINK)}"
        if blobs[0] == blobs[1]:
            return f"mode {modes[0]} and {modes[1]}"
        missing = [entry for entry, blob in zip(self.entries, blobs, strict=True) if blob not in sizes]
        if missing:
            commit, path = missing[0]["commit"], missing[0]["path"]
            where = f"commit {commit:.7} of {path}" if commit else "the record"
            return f"changed; its content was in {where}, which is not there any more"
        if max(sizes[blob] for blob in blobs) > MOST_BYTES:
            return "changed; it is too large to be compared line by line"
        return f"binary, of {sizes[blobs[0]]:,} and {sizes[blobs[1]]:,} bytes"

    def _each(self, key: str) -> Iterator[Any]:
        return (entry[key] for entry in self.entries)

    def _repositories(self) -> Iterator[Path]:
        # Either run's folder may still have the commits of both: runs of one repository share its objects.
        for path in dict.fromkeys(entry["path"] for entry in self.entries if entry["commit"]):
            with contextlib.suppress(GitTrouble, OSError):
                yield find_repository(Path(path)).objects


def _sizes(git: Git, blobs: Iterable[str]) -> dict[str, int]:
    """Return the sizes of blobs, without the blobs that are missing."""
    output = git.run("cat-file", "--batch-check", feed="".join(f"{blob}\n" for blob in blobs).encode())
    lines = map(str.split, output.decode().splitlines())
    return {name: int(size[0]) for name, _, *size in lines if size}


def _of_notebooks(first: tuple[Path, Record], second: tuple[Path, Record]) -> Iterator[FileDifference]:
    """Yield how the cells that ran differ."""
    files = [notebook_file(*side) for side in (first, second)]
    if files[0] is None or files[1] is None:
        if files[0] is not files[1]:
            yield FileDifference(NOTEBOOK, f"only in the {_order(files[1] is None)} run")
        return
    with git_folder() as git:
        text = git.run("diff", "--no-index", *_OPTIONS, *(os.path.abspath(file) for file in files if file), fine=(0, 1))
    yield from (FileDifference(NOTEBOOK, "changed", changes or ()) for changes in _changes(text))


def _changes(text: bytes) -> Iterator[tuple[FileChange, ...] | None]:
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
            changes.append(FileChange(int(line) + (count == b"0"), old, new))
        yield None if b"\nBinary files " in head else tuple(changes)


def _texts(lines: Sequence[bytes]) -> tuple[str, ...]:
    texts = [line[1:].decode(errors="backslashreplace") for line in lines[:MOST_SHOWN]]
    more = [f"(and {len(lines) - MOST_SHOWN:,} more lines)"] if len(lines) > MOST_SHOWN else []
    return (*texts, *more)


def _order(is_first: bool) -> str:
    return "first" if is_first else "second"
