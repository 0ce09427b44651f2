"""Where the code of two runs differs: which files, and in them which lines.

It is read from the two records. Only where both stand on different commits, or where the patch of a run does not show
the whole story, is the repository asked, if it is still there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.code.patch_text import Line, apply_hunks, lines_of, shown_base
from train_manager.runs.code.recorded_files import notebook_file
from train_manager.runs.code.versions import Version

MOST_LINES: Final = 2000  # that are aligned; of longer changes, the first lines are shown side by side
MOST_SHOWN: Final = 1000  # lines of one side of a change
LINK: Final = "120"  # how the mode of a symbolic link begins
NOTEBOOK: Final = "cells of the notebook"

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
    # Either run's folder may still have the commits of both: runs of one repository share its objects.
    folders = [item.get("path") or "" for _, record in (first, second) for item in record.get("repositories") or ()]
    one, other = (_by_place(*side, folders) for side in (first, second))
    found: list[FileDifference] = []
    problems: list[str] = []
    for place in dict.fromkeys([*one, *other]):
        if place not in one or place not in other:
            problems.append(f"{place or 'the repository'} is recorded of the {_order(place in one)} run only")
            continue
        sides = one[place], other[place]
        found += [replace(file, path=f"{place}/{file.path}" if place else file.path) for file in _of_repository(*sides)]
        problems.append(_problem(*sides))
    return CodeDifference((*found, *_of_notebooks(first, second)), tuple(dict.fromkeys(filter(None, problems))))


def changes_between(one: Sequence[Line], other: Sequence[Line]) -> tuple[Change, ...]:
    """Return the places at which two lists of lines differ.

    >>> [str(change) for change in changes_between([b"a", b"lr=0.1", b"b"], [b"a", b"lr=0.2", b"b"])]
    ['line 2: - lr=0.1 + lr=0.2']
    """
    # The equal lines at both ends are cut off first: SequenceMatcher takes quadratic time.
    start = _common(one, other)
    end = _common(one[start:][::-1], other[start:][::-1])
    parts = one[start : len(one) - end], other[start : len(other) - end]
    if max(map(len, parts)) > MOST_LINES:
        return (_change(start, *parts),)
    blocks = SequenceMatcher(None, *parts, autojunk=False).get_opcodes()
    return tuple(_change(start + a, parts[0][a:b], parts[1][c:d]) for tag, a, b, c, d in blocks if tag != "equal")


# ---- one repository ------------------------------------------------------------------------------------------------


def _of_repository(one: Version, other: Version) -> Iterator[FileDifference]:
    """Yield each file that differs."""
    for path in sorted(_candidates(one, other)):
        if one.commit == other.commit:
            states = [_state_on_same_commit(*sides, path) for sides in ((one, other), (other, one))]
        else:
            states = [one.state(path), other.state(path)]
        if states[0] == states[1]:
            continue
        if None in states:
            yield FileDifference(path, f"only in the {_order(states[1] is None)} run")
        else:
            yield FileDifference(path, *_describe(one, other, path))


def _candidates(one: Version, other: Version) -> set[str]:
    """Return the files that may differ."""
    recorded = {*one.entries, *other.entries}
    if one.commit == other.commit:
        return recorded
    trees = one.of_commit.files, other.of_commit.files
    if trees[0] is None or trees[1] is None or None in (one.commit, other.commit):
        return {*one.entries} & {*other.entries}  # only the records are known; `_problem` reports it
    return recorded | {path for path in {*trees[0], *trees[1]} if trees[0].get(path) != trees[1].get(path)}


def _problem(one: Version, other: Version) -> str:
    """Say why not all files of two repositories are compared; nothing if they are."""
    if one.commit == other.commit:
        return ""
    if None in (one.commit, other.commit):
        return "only of one run a commit is known, so only files are compared that both records hold"
    why = next((side.of_commit.problem for side in (one, other) if side.of_commit.files is None), "")
    return why and f"{why}, so only files are compared that both records hold"


def _state_on_same_commit(side: Version, other: Version, path: str) -> tuple[object, ...] | None:
    """Return a value that differs exactly if the two versions of a file differ."""
    # On the same commit a file that one record does not list is as in the commit, whose objects need not be there.
    if path in side.entries:
        return side.state(path)
    return None if other.entries[path].get("status") == "new" else ("as in the commit",)


def _describe(one: Version, other: Version, path: str) -> tuple[str, tuple[Change, ...]]:
    """Return how a file that both have differs, and at which places."""
    sides = one, other
    # The first three digits of a mode are the kind of the entry.
    kinds = [str(side.entries.get(path, {}).get("mode"))[:3] for side in sides]
    if LINK in kinds and kinds[0] != kinds[1]:
        return f"a link in the {_order(kinds[0] == LINK)} run, a file in the {_order(kinds[0] != LINK)}", ()
    if any(side.is_binary(path) for side in sides):
        sizes = " and ".join("unknown" if size is None else f"{size:,}" for size in (side.size(path) for side in sides))
        return f"binary, of {sizes} bytes", ()
    lines = _lines(one, other, path)
    if lines is None:
        return f"changed; {one.why_unknown(path) or other.why_unknown(path)}", ()
    if changes := changes_between(*lines):
        return "changed", changes
    modes = [str(side.entries.get(path, {}).get("mode", "as in the commit")) for side in sides]
    return ("changed" if modes[0] == modes[1] else f"mode {modes[0]} and {modes[1]}"), ()


def _lines(one: Version, other: Version, path: str) -> tuple[Sequence[Line], Sequence[Line]] | None:
    """Return the lines of both versions, if they are known."""
    if one.commit == other.commit:
        # Both patches stand on one commit, so the lines that both leave alone are equal and need not be known.
        hunks = one.hunks(path), other.hunks(path)
        if hunks[0] is not None and hunks[1] is not None:
            base = shown_base(hunks[0], hunks[1])
            return apply_hunks(base, hunks[0]), apply_hunks(base, hunks[1])
    contents = one.content(path), other.content(path)
    if contents[0] is None or contents[1] is None:
        return None
    return lines_of(contents[0]), lines_of(contents[1])


def _of_notebooks(first: tuple[Path, Record], second: tuple[Path, Record]) -> Iterator[FileDifference]:
    """Yield how the cells that ran differ."""
    files = [notebook_file(*side) for side in (first, second)]
    texts = [file.read_bytes() if file else None for file in files]
    if texts[0] == texts[1]:
        return
    if texts[0] is None or texts[1] is None:
        yield FileDifference(NOTEBOOK, f"only in the {_order(texts[1] is None)} run")
    else:
        yield FileDifference(NOTEBOOK, "changed", changes_between([*lines_of(texts[0])], [*lines_of(texts[1])]))


# ---- lines ---------------------------------------------------------------------------------------------------------


def _common(one: Sequence[Line], other: Sequence[Line]) -> int:
    """Return how many items are the same at the beginning."""
    number = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        number += 1
    return number


def _change(start: int, removed: Sequence[Line], added: Sequence[Line]) -> Change:
    old, new = ([_text(line) for line in lines[:MOST_SHOWN]] for lines in (removed, added))
    for texts, lines in ((old, removed), (new, added)):
        if len(lines) > MOST_SHOWN:
            texts.append(f"(and {len(lines) - MOST_SHOWN:,} more lines)")
    if old == new:  # as texts: the only difference is a missing newline at the end of one file
        old, new = ([*texts[:-1], texts[-1] + _end(lines[-1])] for texts, lines in ((old, removed), (new, added)))
    return Change(start + 1, tuple(old), tuple(new))


def _text(line: Line) -> str:
    return (
        "(not shown by a patch)"
        if isinstance(line, int)
        else line.removesuffix(b"\n").decode(errors="backslashreplace")
    )


def _end(line: Line) -> str:
    return "" if isinstance(line, int) or line.endswith(b"\n") else " (without a newline at the end)"


def _order(is_first: bool) -> str:
    return "first" if is_first else "second"


def _by_place(train_dir: Path, record: Record, folders: Sequence[str]) -> dict[str, Version]:
    """Return the repositories of a record, by the submodule or package that each is."""
    found = record.get("repositories") or ()
    return {item.get("inside") or "": Version(train_dir, item, folders) for item in found}
