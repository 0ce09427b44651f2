"""By which command a program was started, and the command that starts it again.

Read from what Python itself was given (``sys.orig_argv``), so that ``-m``, ``-W`` and ``-X`` are known too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from train_manager.files.secrets import redacted_arguments
from train_manager.telling.errors import InputError

_OF_A_PROCESS: Final = "from multiprocessing."  # the beginning of the code after -c in a spawned process
_NOT_AGAIN: Final = {
    "notebook": ("a notebook", "run its cells again; the code record has them in the order in which they ran"),
    "interactive": ("an interactive session", "write what was typed into a file, and run that"),
}


def command() -> dict[str, Any]:
    """Return the command that started this process, with ``***`` in place of values that look like secrets."""
    # The program's main module, which multiprocessing calls `__mp_main__` in a spawned process.
    main = sys.modules.get("__mp_main__") or sys.modules.get("__main__")
    module, file = _module_of(main), getattr(main, "__file__", None)
    file = None if file == "<stdin>" else file  # python -
    arguments = _of_the_program(sys.orig_argv, module)
    redacted = redacted_arguments(arguments)
    return {
        "kind": _kind(module, file),
        "arguments": redacted,
        "hidden": [number for number, pair in enumerate(zip(arguments, redacted, strict=True)) if pair[0] != pair[1]],
        "script": None if file is None else os.path.abspath(file),
        "module": module,
        "folder": _folder(arguments, file),
        "interpreter": sys.executable,
        "search_path": [str(entry) for entry in sys.path],
    }


def _module_of(main: ModuleType | None) -> str | None:
    """Return the name after ``-m``; None if the program was started otherwise."""
    name = getattr(getattr(main, "__spec__", None), "name", None)
    # Python runs the `__main__` of a package; of a folder or a zip file, which is a script, it is the whole name.
    return None if name in (None, "__main__") else str(name).removesuffix(".__main__")


def _of_the_program(arguments: list[str], module: str | None) -> list[str]:
    """Return the command line of the program; a spawned process, such as a pool's worker, has that of its parent."""
    place = next((number for number, text in enumerate(arguments) if text.startswith(_OF_A_PROCESS)), None)
    if place is None:
        return arguments
    program = [sys.argv[0]] if module is None else ["-m", module]
    # The options of Python before -c are passed on to the spawned process, so they are the program's.
    return [*arguments[: place - 1], *program, *sys.argv[1:]]


def _kind(module: str | None, file: str | None) -> str:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return "notebook" if hasattr(shell, "kernel") else "interactive"
    if module is not None or file is not None:
        return "script" if module is None else "module"
    return "code" if sys.argv[:1] == ["-c"] else "interactive"


def _folder(arguments: Sequence[str], file: str | None) -> str:
    """Return the folder in which the command was given, also if the program has called ``os.chdir`` since."""
    # Python has made the path of a script absolute as it started: before the path that was given is the folder.
    given = (text for text in arguments[1:] if file is not None and file.endswith(f"{os.sep}{text}"))
    script = next(given, None)
    return os.getcwd() if file is None or script is None else file[: -len(script) - 1] or os.sep


def run_again(entry: Mapping[str, Any]) -> list[str]:
    """Return the arguments that run the program of a run again, with this interpreter and the same options of it.

    >>> entry = {"command": {"kind": "module", "arguments": ["python", "-X", "dev", "-m", "digits", "--lr", "1"]}}
    >>> run_again(entry)[1:]
    ['-X', 'dev', '-m', 'digits', '--lr', '1']

    Run them in the recorded ``folder``, or in the same place of a copy.

    Raises:
        InputError: the run was one of a notebook or of an interactive session, or it was given a secret, which is not
            recorded.
    """
    recorded = entry.get("command") or {}
    kind, arguments = recorded.get("kind"), list(recorded.get("arguments") or [])
    what, cure = _NOT_AGAIN.get(str(kind), ("", ""))
    if not arguments:
        what, cure = "a program whose command was not recorded", "run it yourself"
    elif hidden := recorded.get("hidden"):
        what = f"a command whose argument {hidden[0]} looks like a secret, and was not recorded"
        cure = "let the program read it from an environment variable"
    if what:
        raise InputError(f"the run was that of {what}, so it cannot be run again", name="command", cure=cure)
    return [sys.executable, *arguments[1:]]


def folder_of(entry: Mapping[str, Any]) -> Path:
    """Return the folder in which the command of a run was given."""
    return Path((entry.get("command") or {}).get("folder") or ".")
