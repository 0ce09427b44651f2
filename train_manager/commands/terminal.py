"""Lines in a terminal: in colours if rich is installed, and cut to its width; in a file or a pipe as they are."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Final

from train_manager.runs.comparing.columns import UNLIMITED, Line

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
    """Return how wide lines may be: as the terminal, or as ``COLUMNS`` says; without end in a file or a pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return UNLIMITED


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines."""
    if sys.stdout.isatty() and _has_rich():
        _print_with_rich(lines)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        text = line.text if encoding.lower().startswith("utf") else line.text.replace("…", "...")
        print(text.encode(encoding, "backslashreplace").decode(encoding))


def _has_rich() -> bool:
    try:
        import rich.console
    except ImportError:
        return False
    return bool(rich.console)


def _print_with_rich(lines: Iterable[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, STYLES[line.kind]), soft_wrap=True)
