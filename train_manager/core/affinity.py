"""Who is running: this thread, or the asyncio task in it. The stages of an Extensible belong to who opened the first.

A thread is told by a lock that it holds: ``lock._is_owned()``, which ``threading.Condition`` is built on, answers at a
quarter of the price of ``get_ident()`` and a comparison, and every stage and every look-up asks.

A task is asked for only where code that can be suspended asks for a stage: one that a plain function asks for and opens
is closed before another task can go on.
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from threading import RLock
from typing import Any

AWAITING = CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
"""Flags of the code of coroutines."""

SUSPENDABLE = CO_GENERATOR | AWAITING
"""And of generators."""


def lock_of_this_thread() -> Any:
    """A lock that this thread holds, and never releases: it is thrown away as another thread comes.

    >>> lock_of_this_thread()._is_owned()
    True
    """
    lock = RLock()
    lock.acquire()
    return lock


def lock_of_nobody() -> Any:
    """In its place where there is no thread, or where a task must be looked at."""
    return RLock()


def current_task() -> object:
    """The asyncio task that is running in this thread, if one is."""
    asyncio: Any = sys.modules.get("asyncio")  # where nobody has imported it there are no tasks
    if asyncio is None or not hasattr(asyncio, "current_task"):  # it may be half-way through its own import
        return None
    return None if asyncio._get_running_loop() is None else asyncio.current_task()
