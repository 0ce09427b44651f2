"""By which command a program was started, and the command that starts it again.

Read from what Python itself was given (``sys.orig_argv``), so that ``-m``, ``-W`` and ``-X`` are known too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from train_manager.files.secrets import redacted_arguments
from train_manager.telling.errors import InputError

_TAKE_A_VALUE: Final = "WXcm"  # Python's own options with a value; arguments after -c and -m belong to the program
_OF_A_PROCESS: Final = "from multiprocessing."  # the beginning of the code after -c in a spawned process
_NOT_AGAIN: Final = {
    "notebook": ("a notebook", "run its cells again; the code record has them in the order in which they ran"),
    "interactive": ("an interactive session", "write what was typed into a file, and run that"),
}


class Started(NamedTuple):
    """The program that a command line of Python starts."""

    kind: str  # "script", "module", "code" (`-c`), or "interactive" if it names no program
    program: str | None  # the path of the script, or the name of the module


def parse_command_line(arguments: Sequence[str]) -> Started:
    """Return the program that a command line of Python runs.

    >>> parse_command_line(["python", "-W", "error", "-um", "pytest", "-x"])
    Started(kind='module', program='pytest')
    >>> parse_command_line(["python3", "-Xdev", "train.py", "--lr", "0.1"]).program
    'train.py'
    """
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-" or not argument.startswith("-"):
            return Started("interactive", None) if argument == "-" else Started("script", argument)
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, None)
            continue
        # Short options may be joined, as in -um: the first one with a value takes the rest of the argument.
        for place, letter in enumerate(argument[1:], start=2):
            if letter in _TAKE_A_VALUE:
                value = argument[place:] or next(rest, "")
                if letter in "cm":
                    return Started("module", value) if letter == "m" else Started("code", None)
                break
    return Started("interactive", None)


def command() -> dict[str, Any]:
    """Return the command that started this process, with ``***`` in place of values that look like secrets."""
    arguments = _of_the_program(list(getattr(sys, "orig_argv", [sys.executable, *sys.argv])))
    started, redacted = parse_command_line(arguments), redacted_arguments(arguments)
    file = getattr(_main(), "__file__", None)
    script = None if file is None or started.kind in ("code", "interactive") else os.path.abspath(file)
    return {
        "kind": _kind(started),
        "arguments": redacted,
        "hidden": [number for number, pair in enumerate(zip(arguments, redacted, strict=True)) if pair[0] != pair[1]],
        "script": script,
        "module": started.program if started.kind == "module" else None,
        "folder": _folder(started, script),
        "interpreter": sys.executable,
        "search_path": [str(entry) for entry in sys.path],
    }


def _main() -> ModuleType | None:
    """Return the program's main module, which multiprocessing calls ``__mp_main__`` in a spawned process."""
    return sys.modules.get("__mp_main__") or sys.modules.get("__main__")


def _of_the_program(arguments: list[str]) -> list[str]:
    """Return the command line of the program; a spawned process, such as a pool's worker, has that of its parent."""
    place = next((number for number, text in enumerate(arguments) if text.startswith(_OF_A_PROCESS)), None)
    if place is None:
        return arguments
    module = getattr(getattr(_main(), "__spec__", None), "name", None)
    program = [sys.argv[0]] if module is None else ["-m", module]
    # The options of Python before -c are passed on to the spawned process, so they are the program's.
    return [*arguments[: place - 1], *program, *sys.argv[1:]]


def _kind(started: Started) -> str:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return "notebook" if hasattr(shell, "kernel") else "interactive"
    if "_pytest" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ:
        return "test"
    return started.kind


def _folder(started: Started, script: str | None) -> str:
    """Return the folder in which the command was given, also if the program has called ``os.chdir`` since."""
    here = os.getcwd()
    if started.kind == "script" and script is not None and started.program is not None:
        program = os.path.normpath(started.program)
        if os.path.isabs(program) or os.path.join(here, program) == script:
            return here
        # A relative path of the script: the folder is the rest of its absolute path.
        if script.endswith(f"{os.sep}{program}"):
            return script[: -len(program) - 1] or os.sep
    return here


def run_again(entry: Mapping[str, Any]) -> list[str]:
    """Return the arguments that run the program of a run again, with this interpreter and the same options of it.

    >>> entry = {"command": {"kind": "module", "arguments": ["python", "-X", "dev", "-m", "digits", "--lr", "1"]}}
    >>> run_again(entry)[1:]
    ['-X', 'dev', '-m', 'digits', '--lr', '1']

    Run them in the recorded ``folder``, or in the same place of a copy.

    Raises:
        InputError: the run was one of a notebook or of an interactive session, of a process that another one had
            started, or it was given a secret, which is not recorded.
    """
    recorded = entry.get("command") or {}
    kind, arguments = recorded.get("kind"), list(recorded.get("arguments") or [])
    what, cure = _NOT_AGAIN.get(str(kind), ("", ""))
    if not arguments:
        what, cure = "a program whose command was not recorded", "run it yourself"
    elif "--multiprocessing-fork" in arguments:
        what, cure = "a process that the program had started", "run the program itself again"
    elif hidden := recorded.get("hidden"):
        what = f"a command whose argument {hidden[0]} looks like a secret, and was not recorded"
        cure = "let the program read it from an environment variable"
    if what:
        raise InputError(f"the run was that of {what}, so it cannot be run again", name="command", cure=cure)
    return [sys.executable, *arguments[1:]]


def folder_of(entry: Mapping[str, Any]) -> Path:
    """Return the folder in which the command of a run was given."""
    return Path((entry.get("command") or {}).get("folder") or ".")
