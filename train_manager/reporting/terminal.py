"""A terminal: texts that fit and that it does not obey, tables, and lines in colours if rich is installed.

In a file or a pipe, lines have no limit.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from train_manager.telling.wrapping import NARROWEST, line_width, wrap_text

ELLIPSIS: Final = "…"
LEAD: Final = 8  # characters before the first difference of texts that are shortened together
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

# ---- texts -----------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    r"""Return a text with the characters escaped that a terminal obeys: colours, bells, line ends, marks of direction.

    >>> print(printable("a\x1b[31mred\nb"))
    a\x1b[31mred\nb
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def printable_lines(text: str) -> str:
    """Return lines, each of which is ``printable``."""
    return "\n".join(map(printable, text.split("\n")))


def width_of(text: str) -> int:
    """Return how many cells of a terminal a text takes.

    >>> width_of("loss"), width_of("損失")
    (4, 4)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def pad(text: str, width: int, *, left: bool = True) -> str:
    """Return a text with blanks up to a width."""
    blanks = " " * (width - width_of(text))
    return text + blanks if left else blanks + text


def cut(text: str, most: int) -> str:
    """Return a text that fits, with the number of the characters that are left out.

    >>> cut("Sequential(Linear(2, 32), ReLU())", 20)
    'Sequential(Line… +18'
    """
    if width_of(text) <= most:
        return text
    kept = _head(text, most - 1)
    # The digits of the number need room themselves, so it is computed until it does not change any more.
    for _ in range(3):
        more = f"{ELLIPSIS} +{len(text) - len(kept)}"
        kept = _head(text, max(1, most - len(more)))
    return kept + f"{ELLIPSIS} +{len(text) - len(kept)}"


def cut_middle(text: str, most: int) -> str:
    """Return a path or a name that fits, without its middle: names differ at their ends.

    >>> cut_middle("runs/a/very/long/path/lr-0.1", 15)
    'runs/a/…/lr-0.1'
    """
    if width_of(text) <= most:
        return text
    start = _head(text, (most - 1) // 2)
    return start + ELLIPSIS + _head(text[::-1], most - 1 - width_of(start))[::-1]


def cut_alike(texts: Sequence[str], most: int) -> list[str]:
    """Return texts that fit and still differ, without the beginning that they share if need be.

    >>> cut_alike(["a long beginning, then 1", "a long beginning, then 2"], 16)
    ['…hen 1', '…hen 2']
    """
    short = [cut(text, most) for text in texts]
    if len({text.partition(ELLIPSIS)[0] for text in short}) == len(set(texts)):
        return short
    long = [text for text in texts if width_of(text) > most]
    start = max(0, _in_common(long) - min(LEAD, most // 4))
    return [
        one if width_of(text) <= most or not start else cut(ELLIPSIS + text[start:], most)
        for one, text in zip(short, texts, strict=True)
    ]


def cut_around(texts: Sequence[str], most: int) -> list[str]:
    """Return texts that fit, with the first place at which they differ in the middle.

    >>> cut_around(["a long line with lr=0.1 in it", "a long line with lr=0.2 in it"], 20)
    ['…with lr=0.1 in it', '…with lr=0.2 in it']
    """
    same = _in_common(texts)
    start = same - len(_head(texts[0][:same][::-1], most // 2))
    return [
        text if width_of(text) <= most else cut(f"{ELLIPSIS}{text[start:]}" if start else text, most) for text in texts
    ]


def _in_common(texts: Sequence[str]) -> int:
    """Return the number of letters that texts share at their beginning."""
    places = enumerate(zip(*texts, strict=False))
    return next((place for place, letters in places if len(set(letters)) > 1), min(map(len, texts)))


def _head(text: str, width: int) -> str:
    """Return as many of the first characters as fit."""
    if text.isascii():
        return text[:width]
    used = 0
    for number, letter in enumerate(text):
        used += _cells(letter)
        if used > width:
            return text[:number]
    return text


def _cells(letter: str) -> int:
    # An accent is drawn over the letter before it; wide East Asian letters take two cells.
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


# ---- lines -----------------------------------------------------------------------------------------------------------


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


# ---- tables ----------------------------------------------------------------------------------------------------------


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


# ---- printing --------------------------------------------------------------------------------------------------------


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
