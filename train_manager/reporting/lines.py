"""Lines of text in a terminal, above the bars of tqdm, or in a file; and the output of a notebook."""

from __future__ import annotations

import sys
from typing import Any, TextIO, final

from tqdm import tqdm


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
