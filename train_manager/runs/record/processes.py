"""Which process it is, so that a reader finds out later whether it is still there; no process is started for it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """Return what names this process: its number, its host, and when it started, for numbers are used again."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": _started(os.getpid())}


def is_of_this_machine(process: dict[str, Any]) -> bool:
    """Return whether a process runs, or ran, on the host that asks."""
    return process.get("host") == socket.gethostname()


def is_gone(process: dict[str, Any]) -> bool:
    """Return whether a process is known to have ended: False of another host's, which cannot be seen from here."""
    pid = process.get("pid")
    if not is_of_this_machine(process) or type(pid) is not int or pid <= 0 or os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    started = _started(pid)
    return started is not None and process.get("started") not in (started, None)


def _started(pid: int) -> str | None:
    """Return a text that another process of the same number does not have; None where the system does not tell.

    It is the boot of the machine and the clock tick after it. A process that has ended, and that its parent has not
    asked about yet, has no such text.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return "ended" if fields[0] in "ZX" else f"{boot}-{int(fields[19])}"
    return None
