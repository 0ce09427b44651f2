"""Which process it is, so that a reader finds out later whether it is still there; no process is started for it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """Return what identifies this process: its number, its host, and when it started."""
    # The start is needed because the system gives the numbers of ended processes to new ones.
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_of(os.getpid())}


def is_of_this_machine(process: dict[str, Any]) -> bool:
    """Return whether a process runs, or ran, on the host that asks."""
    return process.get("host") == socket.gethostname()


def is_gone(process: dict[str, Any]) -> bool:
    """Return whether a process is known to have ended: False of another host's, which cannot be seen from here."""
    pid = process.get("pid")
    if not is_of_this_machine(process) or type(pid) is not int or pid <= 0 or os.name != "posix":
        return False
    try:
        # Signal 0 is not delivered: it only checks that the process exists.
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # it exists and is another user's, or the number is none
    started = _start_of(pid)
    return started is not None and process.get("started") not in (started, None)


def _start_of(pid: int) -> str | None:
    """Return a text that no other process of the same number has; None if the system does not tell the start."""
    # The fields of proc(5) after the name of the program, which may hold spaces: 0 is the state, 19 the start in clock
    # ticks since the boot. A zombie (Z) has ended, and its parent has not waited for it yet.
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return "ended" if fields[0] in "ZX" else f"{boot}-{int(fields[19])}"
    return None
