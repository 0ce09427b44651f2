"""Programs that a child of the fork server runs, as if the interpreter had been started for them.

    child = fork_server.run(script, "train.py", "--epochs", "3", cwd=folder)

Three seconds that each program would spend with the import of torch are spent once. What a process does as it starts,
``python -m train_manager`` for example, is tested with real ones.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings


def script(path: str, *arguments: str) -> None:
    """Run ``python path arguments``."""
    _be([path], arguments, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def module(name: str, *arguments: str) -> None:
    """Run ``python -m name arguments``."""
    _be(["-m", name], arguments, os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def code(text: str, *arguments: str) -> None:
    """Run ``python -c text arguments``."""
    _be(["-c", text], arguments, "")
    exec(compile(text, "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})


def strictly(kind: str, *rest: str) -> None:
    """Run ``python -W error`` with a script or a module: ``strictly("module", "train_manager.demo")``."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "no remote of .* has its commit")  # of the repository of these tests
    {"script": script, "module": module}[kind](*rest)


def _be(program: list[str], arguments: tuple[str, ...], first: str) -> None:
    """Be the process of this command: its arguments, and where it finds modules first."""
    sys.orig_argv = [sys.executable, *program, *arguments]
    sys.argv = [program[0], *arguments]
    sys.path[0] = first  # it was the root of the repository, which PYTHONPATH has in a real process
    sys.path += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
