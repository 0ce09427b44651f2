"""Programs that the library starts as processes, as children of the fork server: each is spared the import of torch.

What ``subprocess.Popen`` does with a real interpreter is tested too, with ``--all-places`` (see ``tests/conftest.py``).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support import programs
from tests.support.fork_server import ForkServer
from tests.support.other_processes import is_running


class ForkedProgram:
    """What a repeated program needs of ``subprocess.Popen``, for ``python -m name arguments`` and ``python script``."""

    def __init__(
        self,
        server: ForkServer,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: IO[bytes],
        **options: Any,
    ) -> None:
        _, *rest = command
        kind, *program = ("module", *rest[1:]) if rest[0] == "-m" else ("script", *rest)
        self._child = server.start(in_a_group, str(stdout.name), dict(env), kind, *program, cwd=cwd)
        self.pid = self._child.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not is_running(self.pid):
            self.returncode = self._child.wait()
        return self.returncode

    def wait(self, timeout: float = 100.0) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("", timeout)
            time.sleep(0.005)
        return code


def in_a_group(log: str, variables: dict[str, str], kind: str, *program: str) -> None:
    """Run a program as the first of a group of processes, with its output in a file."""
    os.setpgid(0, 0)
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.environ.clear()
    os.environ.update(variables)
    {"module": programs.module, "script": programs.script}[kind](*program)
