"""How the code of two runs differs, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from train_manager.reporting.terminal import Line, cut, cut_around, printable
from train_manager.reporting.values import plural
from train_manager.runs.code.differences import CodeDifference, FileChange, FileDifference

MOST_FILES: Final = 10  # files of each run whose differences are shown
MOST_PLACES: Final = 3  # changes of a file that are shown
MOST_LINES: Final = 4  # lines that are shown of each side of a change
INDENT: Final = " " * 6


def code_lines(code: CodeDifference, title: str, width: int, *, shows_all: bool) -> Iterator[Line]:
    """Yield the files that differ, with their places."""
    if code.files:
        verb = "differs" if len(code.files) == 1 else "differ"
        yield Line("")
        yield Line(cut(f"{printable(title)}: {plural(len(code.files), 'file')} {verb}", width), "title")
    shown = code.files if shows_all else code.files[:MOST_FILES]
    for file in shown:
        for line in _file(file, width, shows_all):
            yield Line(cut(line.text, width), line.kind)
    if len(shown) < len(code.files):
        yield Line(f"  and {plural(len(code.files) - len(shown), 'more file')} (--all shows them)", "note")
    yield from (Line(cut(f"  note: {printable(problem)}", width), "note") for problem in code.problems)


def _file(file: FileDifference, width: int, shows_all: bool) -> Iterator[Line]:
    if not file.changes:
        yield Line(f"  {printable(file.path)}: {printable(file.what)}")
        return
    yield Line(f"  {printable(file.path)}")
    shown = file.changes if shows_all else file.changes[:MOST_PLACES]
    for change in shown:
        yield Line(f"    line {change.line}", "note")
        yield from _change(change, width)
    if len(shown) < len(file.changes):
        yield Line(f"    and {plural(len(file.changes) - len(shown), 'more place')} (--all shows them)", "note")


def _change(change: FileChange, width: int) -> Iterator[Line]:
    """Yield the lines of a place; long ones that differ are cut to the part around the difference."""
    room = width - len(INDENT) - 2
    texts = [[*map(printable, lines[:MOST_LINES])] for lines in (change.removed, change.added)]
    for number, pair in enumerate(zip(*texts, strict=False)):
        # Lines of both sides are cut as pairs, by their order: the n-th removed line with the n-th added one.
        texts[0][number], texts[1][number] = cut_around(pair, room)
    for mark, kind, shown, lines in zip("-+", ("removed", "added"), texts, (change.removed, change.added), strict=True):
        yield from (Line(f"{INDENT}{mark} {text}", kind) for text in shown)
        if len(lines) > MOST_LINES:
            yield Line(f"{INDENT}{mark} and {plural(len(lines) - MOST_LINES, 'more line')}", "note")
