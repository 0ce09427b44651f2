"""Who is running: this thread, and the asyncio task in it. A scope belongs to the one that opened it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any


def _look_for_loop() -> object:
    global running_loop
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or not hasattr(asyncio, "_get_running_loop"):  # it may be half-way through its own import
        return None
    running_loop = asyncio._get_running_loop
    return running_loop()


running_loop: Callable[[], object] = _look_for_loop
"""The event loop of this thread, if one is running.

Every stage asks. Once asyncio has been imported this is asyncio's own C function; before that there are no tasks,
and importing it here would double the time of ``import train_manager``.
"""


def current() -> tuple[int, object]:
    """This thread and task, to be compared."""
    asyncio: Any = sys.modules.get("asyncio")
    return get_ident(), None if running_loop() is None else asyncio.current_task()
