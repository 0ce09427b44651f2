"""Real processes for tests, in milliseconds each: a server imports torch once, and forks a child per task.

    with ForkServer() as server:
        child = server.start(train, folder)      # a function of a module, called in a process of its own
        child.wait_for("step 3")                 # what it prints
        child.signal(signal.SIGTERM)
        assert child.wait() == 143

A child is a program: its exit code, its output and its last words are those of a script that calls the function, and
what is registered with ``atexit`` runs. Then it is gone: it does not take down the modules that it shares with the
server, for which the system would have to copy them first, and which takes ten times as long as most children do.

The server trains nothing with torch, whose threads would not survive a fork; so modules with such functions train
nothing either as they are imported. Tests ask for the fixture ``fork_server``, one server for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ROOT = Path(__file__).parents[2]
SECONDS = 100.0  # a child that takes longer hangs: it is ended, and says where it was; less than tests have


class ForkServer:
    """The test's side of the server."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._alive: dict[int, Child] = {}
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=variables, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self, function: Callable[..., object], *args: Any, cwd: Path | None = None, **variables: str) -> Child:
        """Call a function of a module in a new process.

        Args:
            args: are pickled.
            cwd: the folder in which it runs; None for the root of the repository.
            variables: more of the environment. What is read at the import of torch comes too late here.
        """
        reader, writer = os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # not a pipe, which fills if nobody reads
        task = pickle.dumps((function, args, cwd, variables))
        _send(self._ours, task)
        socket.send_fds(self._ours, [b"f"], [writer, errors.fileno()])
        os.close(writer)
        pid = int(_receive(self._ours))
        child = self._alive[pid] = Child(self, pid, os.fdopen(reader, encoding="utf-8"), errors)
        return child

    def run(self, function: Callable[..., object], *args: Any, cwd: Path | None = None, **variables: str) -> Child:
        """Call a function in a new process, and wait for its end."""
        child = self.start(function, *args, cwd=cwd, **variables)
        child.read_to_the_end()
        child.wait()
        return child

    def wait(self, child: Child, seconds: float) -> int:
        """Return the exit code of a child; negative if a signal has ended it."""
        _send(self._ours, pickle.dumps(child.pid))
        self._ours.settimeout(seconds)
        try:
            code = int(_receive(self._ours))
        except TimeoutError:
            code = None
            os.kill(child.pid, signal.SIGABRT)  # faulthandler writes where each thread was
        self._ours.settimeout(None)
        if code is None:
            _receive(self._ours)
        del self._alive[child.pid]
        child.close()
        if code is None:
            raise AssertionError(f"the child did not end in {seconds:g} s:\n{child.errors}")
        return code

    def close(self) -> None:
        """End the server, which ends its children."""
        for child in [*self._alive.values()]:
            child.signal(signal.SIGKILL)
            child.wait()
        self._ours.close()
        self._process.wait(SECONDS)


class Child:
    """A process that runs a function.

    Attributes:
        pid: its number; it belongs to no other process until ``wait`` has returned.
        code: what ``wait`` has returned.
    """

    def __init__(self, server: ForkServer, pid: int, output: IO[str], errors: IO[bytes]) -> None:
        self.pid = pid
        self.code: int | None = None
        self._server = server
        self._output = output
        self._lines: list[str] = []
        self._errors = errors
        self._last_words = ""

    def wait_for(self, start: str) -> str:
        """Read what it prints up to a line that begins so, and return that line."""
        for line in self._output:
            self._lines.append(line)
            if line.startswith(start):
                return line.rstrip("\n")
        raise AssertionError(f"it ended without {start!r}:\n{self.output}{self.errors}")

    def read_to_the_end(self) -> None:
        """Read all that it prints, which may be more than a pipe holds; a child that hangs is ended."""
        late = threading.Timer(SECONDS, self.signal, [signal.SIGABRT])  # faulthandler writes where each thread was
        late.start()
        self._lines += self._output
        late.cancel()

    def signal(self, number: int) -> None:
        """Send it a signal; if it has ended, nothing happens."""
        if self.code is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for its end; return its exit code, or minus the signal that has ended it.

        What it prints must be less than a pipe holds (64 KB), or be read by ``wait_for``.
        """
        if self.code is None:
            self.code = self._server.wait(self, seconds)
        return self.code

    @property
    def output(self) -> str:
        """What it has printed, as far as it was read; all of it once it was waited for."""
        return "".join(self._lines)

    @property
    def errors(self) -> str:
        """What it has written to stderr so far."""
        if not self._errors.closed:
            file = self._errors.fileno()
            self._last_words = os.pread(file, os.fstat(file).st_size, 0).decode()
        return self._last_words

    def close(self) -> None:
        """Keep what it has written, after its end."""
        self._lines += self._output
        self._output.close()
        self._last_words = self.errors
        self._errors.close()


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack("!I", len(message)) + message)


def _receive(connection: socket.socket) -> bytes:
    """Return the next message; empty if the other side has gone."""
    size = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(struct.unpack("!I", size)[0], socket.MSG_WAITALL) if size else b""


# ---- the server's side -----------------------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> Callable[[], object] | None:
    """Fork for each task, and wait for children, until the tests have ended; return the task in a child."""
    alive: set[int] = set()
    while message := _receive(connection):
        request = pickle.loads(message)
        if isinstance(request, int):
            code = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
            alive.discard(request)
            answer = code
        else:
            _, files, _, _ = socket.recv_fds(connection, 1, 2)
            answer = os.fork()
            if answer == 0:
                connection.close()
                return _prepared(request, files)
            alive.add(answer)
            for file in files:
                os.close(file)
        with contextlib.suppress(BrokenPipeError):
            _send(connection, str(answer).encode())
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return None


def _prepared(request: Any, files: list[int]) -> Callable[[], object]:
    """Make the child a program of its own; return what it does."""
    function, args, folder, variables = request
    for file, standard in zip(files, (1, 2), strict=True):
        os.dup2(file, standard)
        os.close(file)
    os.environ.update(variables)
    if folder is not None:
        os.chdir(folder)
    return lambda: function(*args)


class _Exit:
    """The end of a child, after all else that is registered with ``atexit``."""

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._leave)  # before all others, so that it is called after them

    def after(self, task: Callable[[], object]) -> None:
        """Run the task of a child; its exception leaves the interpreter as that of any script."""
        try:
            task()
        except SystemExit as end:
            self._code = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        except Exception:
            self._code = 1
            raise
        self._code = 0

    def _leave(self) -> None:
        """Leave the process with all that it has in memory; not that of the server, or of an interrupted child."""
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code)


def _main() -> None:
    end = _Exit()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background of a shell
    faulthandler.enable()
    import torch._dynamo  # the first optimizer would import it, which takes as long as all the rest

    from train_manager.testing import tiny_manager

    with torch.random.fork_rng(devices=[]):
        tiny_manager().check()  # the first run of each child would read these sources, for most of its time
    assert threading.active_count() == 1, "a child has only the thread that forks"
    # Of the repository of these tests: a child that trains in it would be told so.
    warnings.filterwarnings("ignore", "no remote of .* has its commit")
    gc.freeze()  # else the collector of a child touches, and so copies, all that was imported
    task = _serve(socket.socket(fileno=int(sys.argv[1])))
    if task is not None:
        end.after(task)


if __name__ == "__main__":
    _main()
