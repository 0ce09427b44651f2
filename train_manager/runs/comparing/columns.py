"""A table with a column for each run: cut to the width of a terminal, and in several blocks if it is too wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from train_manager.reporting.terminal_text import cut_alike, cut_middle, pad, printable, width_of

GAP: Final = 2  # cells between two columns
NARROWEST: Final = 12  # cells; before a column gets narrower, the table is split into blocks below each other
WIDEST: Final = 48  # cells of a column
WIDE: Final = 120  # cells; a wider terminal shows outcomes with their messages
SHORT: Final = {
    "EarlyStopping": "early stop",
    "TimeLimit": "time limit",
    "KeyboardInterrupt": "Ctrl-C",
    "SIGINT": "Ctrl-C",
    "SIGTERM": "SIGTERM",
    "SIGUSR1": "SIGUSR1",
    "ended without a word": "killed",
    "running, or ended without a word": "running or killed",
}
"""The outcome of a run as a table shows it, by the recorded reason."""

UNLIMITED: Final = 10_000  # the width of a file or a pipe


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


def run_columns(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, indent: int = 2) -> Iterator[Line]:
    """Yield the lines of a table whose first column has names, and the others the values of a run each.

    >>> print(*(line.text for line in run_columns(["", "a", "b"], [["lr", "0.1", "0.25"]], 80)), sep="\\n")
            a     b
      lr  0.1  0.25
    """
    lines = [[printable(cell) for cell in line] for line in (head, *rows)]
    names = max(width_of(line[0]) for line in lines)
    # The column of names takes at most two fifths of the line, and the runs share the rest.
    names = min(names, max(NARROWEST, width * 2 // 5))
    count = len(head) - 1
    most = min(WIDEST, max(NARROWEST, (width - indent - names) // count - GAP)) if width < UNLIMITED else UNLIMITED
    # The values of a row are cut at the same place, so that the characters in which they differ are still seen.
    cells = [[cut_middle(name, most) for name in lines[0][1:]], *(cut_alike(line[1:], most) for line in lines[1:])]
    widths = [max(width_of(line[column]) for line in cells) for column in range(count)]
    # Each block repeats the names of the rows, and has an empty line before it except the first.
    for number, block in enumerate(_blocks(widths, width - indent - names)):
        if number:
            yield Line("")
        for line, texts in zip(lines, cells, strict=True):
            start = pad(cut_middle(line[0], names), names)
            rest = [pad(texts[column], widths[column], left=False) for column in block]
            text = " " * indent + (" " * GAP).join([start, *rest])
            yield Line(text.rstrip(), "head" if line is lines[0] else "row")


def outcome_in_short(text: str) -> str:
    """Return how a run ended without the message, for which a table has no room.

    >>> outcome_in_short("failed: ValueError: no room (at run > train)"), outcome_in_short("stopped: KeyboardInterrupt")
    ('error: ValueError', 'Ctrl-C')
    """
    word, _, rest = text.partition(" (")[0].partition(": ")
    first = rest.partition(": ")[0]
    # "failed: ValueError: message" becomes "error: ValueError".
    if word == "failed":
        return f"error: {first.rpartition('.')[2]}" if first else word
    return SHORT.get(first or word) or (f"{word}: {first}" if first else word)


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
