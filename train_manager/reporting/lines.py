"""Lines of text in a terminal, above the bars of tqdm, or in a file; and the output of a notebook."""

from __future__ import annotations

import sys
from typing import Any, TextIO, final

from tqdm import tqdm

from train_manager.reporting.terminal import UNLIMITED
from train_manager.telling.wrapping import line_width


def write_line(text: str, file: TextIO | None = None) -> None:
    """Print a line at once; in a terminal above the bars that are drawn there, which stay whole.

    >>> write_line("a line")
    a line
    """
    file = file or sys.stdout
    # Letters that the encoding of a log file lacks, such as all but ASCII, become "?" and not an error.
    encoding = getattr(file, "encoding", None) or "utf-8"
    tqdm.write(text.encode(encoding, "replace").decode(encoding), file=file)
    file.flush()


def width_of_lines(file: TextIO | None = None) -> int:
    """Return how wide a line may be: as wide as the terminal; in a file, a pipe or a notebook it has no limit."""
    return line_width(UNLIMITED) if file is None or file is sys.stdout else UNLIMITED


def is_notebook(file: TextIO | None = None) -> bool:
    """Return whether text goes to a notebook, and not to a given file or a redirected ``sys.stdout``."""
    return file is None and type(sys.stdout).__module__.startswith("ipykernel.")


@final
class NotebookOutput:
    """An output below a cell of a notebook, which is replaced rather than repeated; a new cell has one of its own."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}  # kept here by the owner of the output, to make its text of them
        self._handle: Any = None  # of IPython, by which the output is replaced
        self._cell: int | None = None  # number of the cell that the output is below

    def is_of_this_cell(self) -> bool:
        """Return whether it is below the cell that runs."""
        return self._handle is not None and self._cell == cell_number()

    def show(self, text: str, html: str | None = None) -> None:
        """Show a text in place of the last one."""
        from IPython.display import display

        content = {"text/plain": text} if html is None else {"text/plain": text, "text/html": html}
        if self.is_of_this_cell():
            self._handle.update(content, raw=True)
        else:
            shown = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            self._handle, self._cell = shown, cell_number()

    def __getstate__(self) -> dict[str, Any]:
        return {"lines": {}, "_handle": None, "_cell": None}  # a copy makes a new output below its own cell


def cell_number() -> int | None:
    """Return the number of the cell of a notebook that runs."""
    from IPython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.execution_count


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
