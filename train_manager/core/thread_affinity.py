"""Thread affinity: the stages of an Extensible belong to the thread, or the asyncio task, that opened the outermost.

The thread is compared at each stage and each lookup. The task is compared only if code that can be suspended (a
coroutine or a generator) opens a stage: a stage that a plain function opens is closed before another task runs.
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from typing import Any

AWAITING = CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
"""Flags (``co_flags``) of the code of coroutines: while one awaits, other tasks run."""

SUSPENDABLE = CO_GENERATOR | AWAITING
"""Flags of the code of coroutines and generators: each may be left with a stage open."""

NO_THREAD = 0
"""Stands for the thread if a task owns the stages, or if none was ever opened; ``get_ident`` never returns it."""


def current_task() -> object:
    """Return the asyncio task that runs in this thread, or None."""
    asyncio: Any = sys.modules.get("asyncio")  # unless it was imported elsewhere, no task exists
    # Without a running loop, `current_task` would raise an error; `_get_running_loop` returns None.
    return None if asyncio is None or asyncio._get_running_loop() is None else asyncio.current_task()
