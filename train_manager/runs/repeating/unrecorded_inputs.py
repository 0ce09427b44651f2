"""Inputs of a program that no record has, found in its code: environment variables, and the standard input."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from train_manager.files.secrets import names_a_secret
from train_manager.runs.record.environment import is_recorded

MOST_FILES: Final = 2000  # Python files that are read
MOST: Final = 6  # inputs that are reported
OF_THE_SYSTEM: Final = frozenset({"HOME", "PATH", "USER", "TMPDIR", "TERM", "DISPLAY"})
READERS: Final = frozenset(
    {"getenv", "os.getenv", *(f"{of}environ.{get}" for of in ("", "os.") for get in ("get", "pop"))}
)
STDIN: Final = frozenset({"input", "sys.stdin", "stdin.read", "stdin.readline", "fileinput.input"})


def unrecorded_inputs(folder: Path, entry: Mapping[str, Any]) -> list[str]:
    """Return the inputs that the Python files of a folder read, in words, except variables that a run has recorded.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> _ = (folder / "train.py").write_text("import os, sys\\nlr = os.environ['LR']\\nseed = sys.stdin.read()")
    >>> for text in unrecorded_inputs(folder, {}):
    ...     print(text)
    train.py line 2 reads the variable LR, which was not recorded: RunRecord(variables=["LR"])
    train.py line 3 reads the standard input, which is not recorded: let it read a file
    """
    patterns = (entry.get("environment") or {}).get("patterns") or ()
    # The first place of each input, by the name of the variable; "" stands for the standard input.
    found: dict[str, str] = {}
    for path in islice(_python_files(folder), MOST_FILES):
        for node in ast.walk(_tree(path)):
            name = "" if _is_stdin(node) else _variable(node)
            if name is not None and not (name in OF_THE_SYSTEM or names_a_secret(name) or is_recorded(name, patterns)):
                found.setdefault(name, f"{path.relative_to(folder)} line {getattr(node, 'lineno', 0)}")
    texts = {
        name: f'reads the variable {name}, which was not recorded: RunRecord(variables=["{name}"])' for name in found
    }
    texts |= {"": "reads the standard input, which is not recorded: let it read a file"}
    return [f"{place} {texts[name]}" for name, place in islice(found.items(), MOST)]


def _python_files(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        # `os.walk` descends into the folders that stay in this list: not into hidden ones, nor into virtual
        # environments.
        folders[:] = sorted(one for one in folders if one[0] != "." and not Path(at, one, "pyvenv.cfg").exists())
        yield from (Path(at, name) for name in sorted(files) if name.endswith(".py"))


def _tree(path: Path) -> ast.AST:
    """Return the syntax tree of a file; an empty one if it is not Python."""
    with warnings.catch_warnings(), suppress(OSError, SyntaxError, ValueError, RecursionError):
        warnings.simplefilter("ignore")  # Python warns of invalid escapes in the file, which is not ours
        return ast.parse(path.read_bytes())
    return ast.Module([], [])


def _is_stdin(node: ast.AST) -> bool:
    return (isinstance(node, ast.Call) and ast.unparse(node.func) == "input") or (
        isinstance(node, ast.Attribute) and ast.unparse(node) in STDIN
    )


def _variable(node: ast.AST) -> str | None:
    """Return the name of the environment variable that an expression reads; None if it reads none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        is_read, key = ast.unparse(node.value) in ("environ", "os.environ"), node.slice
    elif isinstance(node, ast.Call) and node.args:
        is_read, key = ast.unparse(node.func) in READERS, node.args[0]
    else:
        return None
    return key.value if is_read and isinstance(key, ast.Constant) and isinstance(key.value, str) else None
