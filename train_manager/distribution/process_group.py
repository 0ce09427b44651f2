"""Messages between the processes that train together; every process takes part in every message.

The group is made once in a process, and left at its end: a group that is made anew meets the addresses of the one
before it in the store, and waits for them.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, Final, NoReturn, TypeVar, cast, final

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not list it
from torch.distributed.distributed_c10d import PrefixStore

from train_manager.distribution.connections import connections, connections_of_groups, shut
from train_manager.distribution.environment import Environment, read_environment
from train_manager.distribution.failures import (
    Failure,
    FailureWatch,
    failure_of,
    has_timed_out,
    in_a_line,
    is_of_communication,
)
from train_manager.telling.errors import RankError

T = TypeVar("T")

ROW: Final = 1024
"""The bytes that each process sends in a message; a longer one is followed by a second."""

LOOK: Final = 0.5
"""Seconds after which a process that waits looks whether another one has failed."""

MEETING: Final = 5.0
"""Seconds for which a process that fails before the first message looks for the store, to report its failure there."""

# torch 2.13 has renamed it, and warns of the old name.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@final
class ProcessGroup:
    """The processes that train together.

    Messages are tensors on the CPU, so that no step waits for a device.

    Args:
        environment: the place of this process.
        timeout: seconds after which a process that does not come is an error.
        meeting: seconds for which to look for the store; ``timeout`` if it is None.

    Attributes:
        tensors: the group for gradients and parameters; None until the first message, or for the default group.
    """

    def __init__(self, environment: Environment, timeout: float, meeting: float | None = None) -> None:
        self.place, self.timeout = environment.place, timeout
        self.tensors: Any = None
        self._pid = os.getpid()
        self._hosts = environment.hosts_store
        store = PrefixStore(f"train_manager/{environment.attempt}", _store(environment, timeout, meeting or timeout))
        self.watch = FailureWatch(store, environment)
        self._store = store
        self._messages: Any = None  # the group for messages, from the first one on
        self._is_own = False  # whether the default group was made here
        self._connections: dict[int, Any] = {}
        self._failed: str | None = None  # not the error, whose traceback holds all that was alive
        atexit.register(self.close)

    def _join(self) -> None:
        """Make the groups, once all processes are there: torch would wait without looking for failures."""
        rank, number = self.place
        if self._store.add("met", 1) == number:
            self._store.set("all met", "")
        until = time.monotonic() + self.timeout
        while not self._store.check(["all met"]):
            is_late = time.monotonic() > until
            failure = self.watch.find(self.timeout, has_waited=True) if is_late else self.watch.failure()
            if failure is not None:
                raise failure.error()
            time.sleep(0.01)
        before, limit = connections(), timedelta(seconds=self.timeout)
        if dist.is_initialized():  # the program has made the default group, as Ray Train
            self.tensors = dist.new_group(timeout=limit)
        else:
            self._is_own = True
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            store = PrefixStore("default", self._store)
            dist.init_process_group(backend, store=store, rank=rank, world_size=number, timeout=limit)
        # Longer than `_wait`, whose error names the process that has not come; that of gloo would not.
        self._messages = dist.new_group(backend="gloo", timeout=2 * limit)
        self._connections = connections_of_groups(before, 2, number)

    def close(self) -> None:
        """Leave the group as the process ends; an error that ends it is reported."""
        atexit.unregister(self.close)
        if os.getpid() != self._pid:  # a process that was forked is not in the group
            return
        error = getattr(sys, "last_value", None)  # the error that ends the program, wherever it was raised
        if error is not None and self._failed is None:
            self.watch.report(failure_of(self.place.rank, error))
        self.watch.leave()
        if self._hosts:
            self.watch.wait_for_others(self.timeout)
        if dist.is_initialized():
            own = [None] if self._is_own else [self.tensors, self._messages]
            for group in own if self._messages is not None else []:
                dist.destroy_process_group(group)
        self._messages = self.tensors = None

    def fail(self, error: BaseException) -> None:
        """Report to the other processes that this one has failed, and leave the group.

        Raises:
            RankError: ``error`` comes from another process that has failed.
        """
        if self._failed is not None or os.getpid() != self._pid:
            return
        self._failed = in_a_line(error)
        failure = None
        if is_of_communication(error):
            self.watch.place = f"an exchange of tensors after {self.watch.place}"
            failure = self._find(has_waited=has_timed_out(error))
        if failure is None:
            first = self.watch.report(failure_of(self.place.rank, error))
            if first.rank != self.place.rank and not (first.text in str(error) or str(error) in first.text):
                error.add_note(first.text)
        self._leave()
        if failure is not None:
            found = failure.error()
            self._failed = in_a_line(found)
            raise found from error

    def _leave(self) -> None:
        """Let the others wait no longer for this process, which may live on."""
        self.watch.leave()
        shut(self._connections)

    # ---- messages --------------------------------------------------------------------------------------------------

    def gather(self, value: T, at: str) -> list[T]:
        """Return what all processes give at a place, in the order of their ranks.

        Raises:
            RankError: another process is at another place, has failed, or does not come.
        """
        content = pickle.dumps((at, value))
        rows = self._gather_bytes(len(content).to_bytes(8, "little") + content[: ROW - 8], ROW, at)
        if rows.count(rows[0]) == len(rows) and len(content) <= ROW - 8:
            return [value] * len(rows)  # all give the same, as in nearly every step: there is nothing to unpickle
        sizes = [int.from_bytes(row[:8], "little") for row in rows]
        if max(sizes) > ROW - 8:
            found = [row[:size] for row, size in zip(self._gather_bytes(content, max(sizes), at), sizes, strict=True)]
        else:
            found = [row[8 : 8 + size] for row, size in zip(rows, sizes, strict=True)]
        # The processes run one program, which has made these bytes just now.
        given = [pickle.loads(one) for one in found]
        if any(place != at for place, _ in given):
            raise self._places_error([place for place, _ in given])
        return [value for _, value in given]

    def of_first(self, value: T, at: str) -> T:
        """Return what rank 0 gives at a place."""
        is_first = not self.place.rank
        content = pickle.dumps(value) if is_first else b""
        size = self.gather(len(content), at)[0]
        tensor = torch.empty(size, dtype=torch.uint8)
        if is_first:
            tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        self._wait(lambda: dist.broadcast(tensor, 0, group=self._messages, async_op=True))
        return value if is_first else cast(T, pickle.loads(tensor.numpy().tobytes()))

    def _gather_bytes(self, content: bytes, size: int, at: str) -> list[bytes]:
        own = torch.frombuffer(bytearray(content.ljust(size, b"\0")), dtype=torch.uint8)
        found = torch.empty(size * self.place.number, dtype=torch.uint8)
        self.watch.place = at
        self._wait(lambda: _all_gather(found, own, group=self._messages, async_op=True))
        self.watch.passed = at
        content = found.numpy().tobytes()
        return [content[start : start + size] for start in range(0, len(content), size)]

    def _wait(self, begin: Callable[[], Any]) -> None:
        """Wait for the others, and look from time to time whether one of them has failed."""
        if os.getpid() != self._pid:
            what, cure = "a process that was forked is not one of those that train together", "ask in its parent"
            raise RankError(what, name=f"rank {self.place.rank}", cure=cure)
        if self._failed is not None:
            what = f"this process has left those that train together, as it has failed: {self._failed}"
            raise RankError(what, name=f"rank {self.place.rank}", cure="start all processes again")
        if self._messages is None:
            self._join()
        until = time.monotonic() + self.timeout
        try:
            work = begin()
        except RuntimeError as error:  # the connection is lost already
            self._raise_lost(error, has_waited=False)
        while True:
            try:
                work.wait(timedelta(seconds=LOOK))
                return
            except RuntimeError as error:
                is_late = time.monotonic() > until
                if work.is_completed() or is_late or self.watch.failure() is not None:
                    self._raise_lost(error, has_waited=is_late)

    def _raise_lost(self, error: RuntimeError, *, has_waited: bool) -> NoReturn:
        failure = self._find(has_waited=has_waited)
        if failure is not None:
            raise failure.error() from None  # the lines of the connection that was lost would say nothing more
        what = f"the connection to another process was lost at {self.watch.place}, and none has reported an error"
        cure = "was a process killed? torchrun names it; else, does the network work? start all processes again"
        raise RankError(what, name=f"rank {self.place.rank}", cure=cure) from error

    def _find(self, *, has_waited: bool) -> Failure | None:
        if not has_waited:
            shut(self._connections)  # else others, which wait within torch for this process, would seem to have ended
        return self.watch.find(self.timeout, has_waited=has_waited)

    def _places_error(self, places: list[str]) -> RankError:
        lines = "\n".join(f"  rank {rank} is at {place}" for rank, place in enumerate(places))
        cure = "each process must make the same calls: does a hook of one skip or ask for something alone?"
        return RankError(f"the processes are at different places\n{lines}", name="ranks", cure=cure)


def _store(environment: Environment, timeout: float, meeting: float) -> Any:
    """Return the store of all processes: that of torchrun, or one of rank 0.

    Raises:
        RankError: it does not answer in time.
    """
    address, port = environment.address
    limit, is_host = timedelta(seconds=timeout), environment.hosts_store
    try:
        if not is_host:
            _await_store(environment.address, meeting)
        # multi_tenant: a program that has made the default group has a store at this port.
        make = partial(TCPStore, address, port, None, is_host, limit, wait_for_workers=False, multi_tenant=True)
        return _result_within(meeting, make)
    except (OSError, RuntimeError) as error:
        what = f"{environment.store_ends_with} did not answer at {address}:{port} within {meeting:g} s"
        cure = "has it come to the training? give Distributed(timeout=...) more seconds"
        raise RankError(what, name="rank 0", cure=cure) from error


def _result_within(seconds: float, make: Callable[[], T]) -> T:
    """Return what a function returns in time: torch waits for ever for a program that listens and does not answer.

    Raises:
        TimeoutError: it has not returned.
    """
    made: Future[T] = Future()

    def answer() -> None:
        try:
            made.set_result(make())
        except Exception as error:
            made.set_exception(error)

    # Not a pool: Python would wait for its threads as the process ends.
    threading.Thread(target=answer, daemon=True, name="meets the store").start()
    return made.result(seconds)


def _await_store(address: tuple[str, int], seconds: float) -> None:
    """Wait until a store listens: torch, which waits longer each time, would come late by as much as it has waited."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(address, timeout=seconds).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.05)


_made: list[ProcessGroup] = []


def has_process_group() -> bool:
    """Return whether this process has a group."""
    return bool(_made)


def process_group(timeout: float, meeting: float | None = None) -> ProcessGroup:
    """Return the group of this process; made by its first call."""
    if not _made:
        environment = read_environment()
        assert environment is not None, "a process that trains alone has no group"
        _made.append(ProcessGroup(environment, timeout, meeting))
    return _made[0]
