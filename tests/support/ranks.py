"""Processes that train together in tests: children of the fork server, with the variables that torchrun sets."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.fork_server import Child, ForkServer


class Ended(NamedTuple):
    """How a process has ended."""

    value: Any  # what the function has returned
    error: BaseException | None  # what it has raised, without its traceback
    text: str  # the traceback and its notes; empty without an error
    code: int
    output: str


# A place for each process of the tests; below the ports that systems give to connections, of which one may be taken
# again before rank 0 listens.
_ports = itertools.cycle(itertools.chain(range(12_000 + os.getpid() * 97 % 20_000, 32_000), range(12_000, 32_000)))


def free_port() -> int:
    """Return a port that no program listens on."""
    for port in _ports:
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a cycle does not end")


def start_ranks(
    server: ForkServer, number: int, function: Callable[..., Any], *args: Any, folder: Path, **variables: str
) -> list[Child]:
    """Call a function in processes that train together; what it returns must be picklable."""
    port = free_port()
    own = {
        "WORLD_SIZE": str(number),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return [
        server.start(_call, function, args, str(folder), cwd=folder, RANK=str(rank), LOCAL_RANK=str(rank), **own)
        for rank in range(number)
    ]


def ends_of(children: list[Child], folder: Path) -> list[Ended]:
    """Wait for the processes, and return how each has ended."""
    return [end_of(child, rank, folder) for rank, child in enumerate(children)]


def end_of(child: Child, rank: int, folder: Path) -> Ended:
    """Wait for one of the processes, and return how it has ended."""
    child.read_to_the_end()
    code = child.wait()
    file = folder / f"rank-{rank}.pickle"
    value, error, text = pickle.loads(file.read_bytes()) if file.exists() else (None, None, child.errors)
    file.unlink(missing_ok=True)
    return Ended(value, error, text, code, child.output)


def on_ranks(
    server: ForkServer, number: int, function: Callable[..., Any], *args: Any, folder: Path, **variables: str
) -> list[Any]:
    """Return what a function returns in each of the processes; their errors are errors here."""
    ends = ends_of(start_ranks(server, number, function, *args, folder=folder, **variables), folder)
    for rank, end in enumerate(ends):
        assert not end.text, f"rank {rank} has failed\n{end.text}\n{end.output}"
    return [end.value for end in ends]


def _call(function: Callable[..., Any], args: tuple[Any, ...], folder: str) -> None:
    value, error, text = None, None, ""
    try:
        value = function(*args)
    except BaseException as found:
        error, text = found.with_traceback(None), "".join(traceback.format_exception(found))
    try:
        content = pickle.dumps((value, error, text))
    except Exception:  # an error of a class that cannot be pickled
        content = pickle.dumps((value, RuntimeError(f"{type(error).__name__}: {error}"), text))
    Path(folder, f"rank-{os.environ['RANK']}.pickle").write_bytes(content)
