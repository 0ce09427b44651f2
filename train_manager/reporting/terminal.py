"""Lines and tables in a terminal: in colours if rich is installed, and cut to its width; in a file or a pipe whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from train_manager.reporting.terminal_text import cut_alike, cut_middle, pad, printable, width_of
from train_manager.telling.wrapping import NARROWEST, line_width, wrap_text

UNLIMITED: Final = 10_000  # the width of a file or a pipe
GAP: Final = 2  # cells between two columns
NARROWEST_COLUMN: Final = 12  # cells; before a column gets narrower, the table is split into blocks below each other
WIDEST_COLUMN: Final = 48  # cells
STYLES: Final = {
    "title": "bold",
    "head": "dim",
    "note": "dim",
    "removed": "red",
    "added": "green",
    "bad": "red",
    "row": "",
}


@final
@dataclass(frozen=True)
class Line:
    """A line of text, and what it is.

    Attributes:
        text: the line.
        kind: "title", "head", "row", "note", "removed", "added" or "bad".
    """

    text: str
    kind: str = "row"


# ---- tables --------------------------------------------------------------------------------------------------------


def table_lines(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    indent: int = 0,
    left: Sequence[str] = (),
    shows_head: bool = True,
) -> Iterator[Line]:
    """Yield the lines of a table; columns that have no room stand in blocks below, beside the first column.

    >>> print(*(line.text for line in table_lines(["run", "loss"], [["a", "0.5"], ["b", "0.25"]], 80)), sep="\\n")
    run  loss
    a     0.5
    b    0.25

    Args:
        head: names of the columns.
        rows: the cells of each row.
        width: of the terminal, in cells.
        indent: blanks before each line.
        left: names of the columns of words, which are set to the left as the first column is.
        shows_head: whether the names of the columns are shown.
    """
    lines = [[printable(cell) for cell in line] for line in ([head] * shows_head + [*rows])]
    names, *widths = (max(map(width_of, column)) for column in zip(*lines, strict=True))
    # Each block repeats the first column, and has an empty line before it except the first.
    for number, block in enumerate(_blocks(widths, width - indent - names)):
        if number:
            yield Line("")
        for line in lines:
            cells = [pad(line[1 + column], widths[column], left=head[1 + column] in left) for column in block]
            text = " " * indent + (" " * GAP).join([pad(line[0], names), *cells])
            yield Line(text.rstrip(), "head" if shows_head and line is lines[0] else "row")


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return which columns stand beside each other."""
    blocks: list[list[int]] = [[]]
    used = 0
    for column, width in enumerate(widths):
        if blocks[-1] and used + GAP + width > room:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += GAP + width
    return blocks


def side_by_side_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: int = 2
) -> Iterator[Line]:
    """Yield the lines of a table whose first column has names, and the others the values of a run each.

    >>> print(*(line.text for line in side_by_side_lines(["", "a", "b"], [["lr", "0.1", "0.25"]], 80)), sep="\\n")
            a     b
      lr  0.1  0.25
    """
    lines = [[printable(cell) for cell in line] for line in (head, *rows)]
    # The column of names takes at most two fifths of the line, and the runs share the rest.
    names = min(max(width_of(line[0]) for line in lines), max(NARROWEST_COLUMN, width * 2 // 5))
    share = max(NARROWEST_COLUMN, (width - indent - names) // (len(head) - 1) - GAP)
    most = min(WIDEST_COLUMN, share) if width < UNLIMITED else UNLIMITED
    runs = [cut_middle(name, most) for name in lines[0][1:]]
    # The values of a row are cut at the same place, so that the characters in which they differ are still seen.
    values = [[cut_middle(name, names), *cut_alike(texts, most)] for name, *texts in lines[1:]]
    return table_lines(["", *runs] if not lines[0][0] else [lines[0][0], *runs], values, width, indent=indent)


# ---- printing ------------------------------------------------------------------------------------------------------


def terminal_width() -> int:
    """Return the width of lines: of the terminal, or in ``COLUMNS``; a file or a pipe has no limit."""
    columns = os.environ.get("COLUMNS", "")
    return max(NARROWEST, int(columns)) if columns.isdigit() else line_width(UNLIMITED)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines."""
    if sys.stdout.isatty() and _has_rich():
        _print_with_rich(lines)
        return
    # Letters that the encoding of a pipe lacks are escaped: an error would end the command in the middle.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        text = line.text if encoding.lower().startswith("utf") else line.text.replace("…", "...")
        print(text.encode(encoding, "backslashreplace").decode(encoding))


def print_wrapped(text: str) -> None:
    """Print lines at once; one that is wider than the terminal continues with two more blanks before it."""
    width = terminal_width()
    for line in text.split("\n"):
        rest = " " * (len(line) - len(line.lstrip()) + 2)
        for one in [line] if len(line) <= width else wrap_text("", line, rest, width):
            print(one, flush=True)


def _has_rich() -> bool:
    try:
        import rich.console
    except ImportError:
        return False
    return bool(rich.console)


def _print_with_rich(lines: Iterable[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    # Without highlight, which would colour every number; soft_wrap leaves long lines to the terminal.
    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, STYLES[line.kind]), soft_wrap=True)
