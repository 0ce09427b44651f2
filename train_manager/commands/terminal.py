"""Lines in a terminal: in colours if rich is installed, and cut to its width; in a file or a pipe as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

from train_manager.runs.comparing.columns import UNLIMITED, Line
from train_manager.telling.wrapping import NARROWEST, line_width, wrap_text

STYLES: Final = {
    "title": "bold",
    "head": "dim",
    "note": "dim",
    "removed": "red",
    "added": "green",
    "bad": "red",
    "row": "",
}


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
