"""The cells of a notebook that ran, in their order: the code of a run that no file has.

IPython is never imported here: without it in sys.modules there are no cells.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from train_manager.files.secrets import redacted

_HEAD: Final = "# The cells of a notebook that ran, in the order in which they ran."
_OF_IPYTHON: Final = "# only in IPython: "
# The head of a script with cells that await at their top level, which plain Python does not allow.
_RUNS_WHAT_AWAITS: Final = """
import ast as _ast, asyncio as _asyncio, atexit as _atexit
_loop = _asyncio.new_event_loop()
_atexit.register(_loop.close)


def _run_cell(cell):  # one that awaits outside of a function
    _loop.run_until_complete(eval(compile(cell, "<cell>", "exec", _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals()))
"""
_MAGICS: Final = (
    "bash cmd html javascript js latex markdown perl ruby script sh svg system sx writefile file cython sql"
)
_NO_PYTHON: Final = frozenset(_MAGICS.split())  # cell magics whose body is another language, or is written to a file
# Escape sequences in strings except escaped quotes, which are needed to find the ends of strings.
_ESCAPE: Final = re.compile(r"\\(?:\\|N\{[^}]*\}|[^\n'\"])")
# Lines that only IPython runs: `%magic`, `!command`, `?help`, `x = %magic`, `x = !command`, `name?` and `name??`.
_MAGIC: Final = re.compile(r"(?P<indent>\s*)(?:[%!?]|[\w.,\s\[\]'\"]+=\s*[%!]|.*[\w)]\?{1,2}\s*$)")


def cells_that_ran() -> list[str]:
    """Return the cells that have run in this process, in their order, as they were typed; none outside of IPython.

    The present one is the last. A cell that ran twice is there twice, one that failed is there too.
    """
    ipython = sys.modules.get("IPython")
    shell: Any = getattr(ipython, "get_ipython", lambda: None)()
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", [])
    return [cell for cell in list(history)[1:] if isinstance(cell, str) and cell.strip()]  # IPython puts "" first


def as_script(cells: Sequence[str]) -> str:
    r"""Return cells as a Python file, which editors show as cells again.

    What only IPython runs (``%matplotlib inline``, ``!pip list``) is a comment there, and secrets are ``***``.

    >>> print(as_script(["%matplotlib inline\nx = 1", "x + 1"]))
    # The cells of a notebook that ran, in the order in which they ran.
    <BLANKLINE>
    # %% 1
    # only in IPython: %matplotlib inline
    x = 1
    <BLANKLINE>
    # %% 2
    x + 1
    <BLANKLINE>
    """
    texts = [_as_python(redacted(cell, bare=False)) for cell in cells]
    head = [f"{_HEAD}\n", *[_RUNS_WHAT_AWAITS] * any(text.startswith("_run_cell(") for text in texts)]
    return "\n".join([*head, *(f"# %% {number}\n{text}\n" for number, text in enumerate(texts, start=1))])


def _as_python(cell: str) -> str:
    cell = cell.rstrip()
    # Valid Python stays as it is, also if a line of a string in it begins with %.
    if (script := _as_script(cell)) is not None:
        return script
    lines = cell.split("\n")
    if lines[0].startswith("%%") and lines[0][2:].split()[0:1] and lines[0][2:].split()[0] in _NO_PYTHON:
        return _comment_out(lines)
    script = _as_script("\n".join(_without_magics(lines)))
    return f"# it is not Python\n{_comment_out(lines)}" if script is None else script


def _as_script(text: str) -> str | None:
    """Return a cell as code of a script: as it is, if it awaits nothing; None if it is not Python."""
    # Without invalid escapes: the compiler would warn of them again, and warnings cannot be silenced for one thread.
    plain = _ESCAPE.sub(" ", text)
    try:
        code = compile(plain, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    if not code.co_flags & inspect.CO_COROUTINE:
        return text
    # Raw triple quotes keep the cell readable; `repr` is for a cell that has them itself.
    return f"_run_cell({text!r})" if "'''" in text else f"_run_cell(r'''\n{text}\n''')"


def _without_magics(lines: list[str]) -> Iterator[str]:
    # `continues`: the line before ended with a backslash, so that this line belongs to the same command.
    continues, indent = False, ""
    for line in lines:
        match = _MAGIC.match(line)
        if not continues and match is None:
            yield line
            continue
        indent = indent if continues or match is None else match["indent"]
        continues = line.rstrip().endswith("\\")
        # A block needs a statement: with a comment alone in it the script would not be Python.
        yield f"{indent}{'pass  ' if indent else ''}{_OF_IPYTHON}{redacted(line.strip())}"


def _comment_out(lines: Sequence[str]) -> str:
    return "\n".join(f"{_OF_IPYTHON}{redacted(line)}".rstrip() for line in lines)
