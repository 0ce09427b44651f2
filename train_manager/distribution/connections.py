"""The connections of a process group, which a process that fails shuts: others wait for it within torch.

A group's destructor would close them; but it is held by DistributedDataParallel, by the traceback of the error, and so
by the program that has caught the error. gloo's ``abort`` does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from typing import Any

Connections = dict[int, Any]
"""By file descriptor: both addresses of a connection."""


def connections() -> Connections:
    """Return the connections that this process has; none on a system without ``/dev/fd``."""
    try:
        files = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return {}
    found = {file: _addresses(file) for file in files}
    return {file: addresses for file, addresses in found.items() if addresses is not None}


def connections_of_groups(before: Mapping[int, Any], groups: int, number: int) -> Connections:
    """Return the connections of groups that were made just now.

    Args:
        before: the connections before.
        groups: how many groups were made.
        number: how many processes each of them has.
    """
    found = {file: one for file, one in connections().items() if before.get(file) != one}
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "").count(",") + 1
    # Another thread may have opened a connection meanwhile, which must not be shut.
    return found if len(found) == groups * (number - 1) * interfaces else {}


def shut(given: Mapping[int, Any]) -> None:
    """End connections for both sides; those that are closed already are left out."""
    for file, addresses in given.items():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file)) as found:
            if (found.getsockname(), found.getpeername()) == addresses:
                found.shutdown(socket.SHUT_RDWR)


def _addresses(file: int) -> Any:
    try:
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            return None
        with socket.socket(fileno=os.dup(file)) as found:
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
            return (found.getsockname(), found.getpeername()) if is_tcp else None
    except OSError:  # it is not connected, or was closed just now
        return None
