"""Lines of text in a terminal, above the bars of tqdm, or in a file; and what a notebook shows in their place."""

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
    encoding = getattr(file, "encoding", None) or "utf-8"  # a log file may have no letters but those of ASCII
    tqdm.write(text.encode(encoding, "replace").decode(encoding), file=file)
    file.flush()


def is_notebook(file: TextIO | None = None) -> bool:
    """Return whether text goes to a notebook: it does not if a file is given, or ``sys.stdout`` was redirected."""
    return file is None and type(sys.stdout).__module__.startswith("ipykernel.")


@final
class NotebookOutput:
    """An output below a cell of a notebook, which is replaced rather than repeated; a new cell has one of its own.

    Attributes:
        lines: for its user to keep what it is made of.
    """

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self._handle: Any = None
        self._cell: int | None = None

    def is_of_this_cell(self) -> bool:
        """Return whether it is below the cell that runs."""
        return self._handle is not None and self._cell == cell_number()

    def show(self, text: str, html: str | None = None) -> None:
        """Show this in place of what was shown before."""
        from IPython.display import display

        content = {"text/plain": text} if html is None else {"text/plain": text, "text/html": html}
        if self.is_of_this_cell():
            self._handle.update(content, raw=True)
        else:
            shown = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            self._handle, self._cell = shown, cell_number()

    def __getstate__(self) -> dict[str, Any]:
        return {"lines": {}, "_handle": None, "_cell": None}  # a copy has an output of its own


def cell_number() -> int | None:
    """Return the number of the cell of a notebook that runs."""
    from IPython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.execution_count
