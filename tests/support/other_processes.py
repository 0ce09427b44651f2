"""Which processes are there besides the one of the tests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def children() -> set[int]:
    """Return the processes that this one has started, those that have ended too if nothing has waited for them.

    Compare with what was there before: the server of ``tests/support/fork_server.py`` may be. Python's own tracker of
    shared memory, which stays once there were workers, does not count.
    """
    tasks = Path("/proc/self/task").iterdir()
    numbers: set[int] = set()
    for task in tasks:
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended since its name was read
            numbers.update(map(int, (task / "children").read_text().split()))
    return {number for number in numbers if b"resource_tracker" not in Path(f"/proc/{number}/cmdline").read_bytes()}


def is_running(process: int) -> bool:
    """Return whether a process is there and has not ended; one that waits for its parent has."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
