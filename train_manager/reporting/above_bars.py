"""What a program prints while bars are drawn: it stands above them."""

from __future__ import annotations

import sys
from typing import Any, TextIO, final

from tqdm import tqdm


@final
class PrintedAbove:
    """Lets ``print`` and warnings stand above bars in a terminal, as long as the bars are there.

    A bar moves the cursor, so a line that a hook prints would begin in the bar, and the bar would be drawn in the line.

    Args:
        bars: the terminal in which the bars are drawn.
    """

    def __init__(self, bars: TextIO) -> None:
        # The stream itself: bars that were drawn into the new sys.stderr would be printed above themselves, as lines.
        self.bars = bars
        self._stdout = _Lines(sys.stdout, bars) if sys.stdout.isatty() else sys.stdout
        self._stderr = _Lines(sys.stderr, bars) if sys.stderr.isatty() else sys.stderr
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._stdout, self._stderr

    def end(self) -> None:
        """Let the program print as before."""
        # A stream that something else has put into its place since, such as pytest, stays there.
        for stream in (self._stdout, self._stderr):
            if isinstance(stream, _Lines):
                stream.end_line()
        if sys.stdout is self._stdout:
            sys.stdout = self._before[0]
        if sys.stderr is self._stderr:
            sys.stderr = self._before[1]


@final
class _Lines:
    """A stream to a terminal that keeps the beginning of a line until the line is whole."""

    def __init__(self, terminal: TextIO, bars: TextIO) -> None:
        self._terminal = terminal
        self._bars = bars
        self._begun = ""  # the beginning of a line, until its newline is written

    def write(self, text: str) -> int:
        """Print the whole lines above the bars."""
        lines, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._print(lines + newline)
        return len(text)

    def end_line(self) -> None:
        """Print a line that was begun."""
        if self._begun:
            self._print(self._begun)
            self._begun = ""

    def _print(self, text: str) -> None:
        # tqdm clears its bars, and draws them again below the text.
        with tqdm.external_write_mode(file=self._bars):
            self._terminal.write(text)
            self._terminal.flush()

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    # `fileno`, `isatty` and `encoding` are asked of streams by many libraries.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)
