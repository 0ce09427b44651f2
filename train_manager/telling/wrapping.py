"""Long texts in lines: as wide as the terminal, or as a caller chooses if the text goes to a file or a pipe."""

from __future__ import annotations

import shutil
import sys
from textwrap import wrap
from typing import Final

WIDTH: Final = 100
"""The longest line of text, in characters; in a narrower terminal its width."""
NARROWEST: Final = 40  # a narrower terminal breaks lines itself: few words would fit beside the indentation


def line_width(most: int = WIDTH) -> int:
    """Return the width of lines: ``most``, or fewer in a narrower terminal."""
    # sys.stdout is None in a process without a console, such as pythonw.
    if sys.stdout is not None and sys.stdout.isatty():
        return min(most, max(NARROWEST, shutil.get_terminal_size((most, 24)).columns))
    return most


def wrap_text(first: str, text: str, rest: str, width: int, *, breaks_words: bool = False) -> list[str]:
    """Break a text into lines between its words; ``first`` stands before the first line, ``rest`` before the others.

    >>> wrap_text("do  ", "give the parameter to an optimizer", "    ", 24)
    ['do  give the parameter', '    to an optimizer']
    """
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=breaks_words,
        break_on_hyphens=False,
    )
