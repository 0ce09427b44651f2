"""Which process has failed, has ended, or does not come: found out by a store that all processes read.

A process that waits in a collective operation learns nothing of the others. So the first failure is written to the
store, where waiting processes look; and a thread of each process writes there that it is alive, and where it is.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Final, NamedTuple, cast, final

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store

from train_manager.telling.errors import CheckError, RankError

BEAT: Final = 1.0
"""Seconds between two signs of life of a process."""

SILENCE: Final = 2.2 * BEAT
"""Seconds without a sign of life after which a process is taken to have ended."""

FAILED: Final = "failed"


class Failure(NamedTuple):
    """The first failure of all processes, as each of them reads it."""

    rank: int
    text: str
    cure: str
    is_check: bool  # mistakes that were found before the first stage

    def error(self) -> RankError | CheckError:
        """Return the error of a process that another one has failed."""
        return (
            CheckError(self.text) if self.is_check else RankError(self.text, name=f"rank {self.rank}", cure=self.cure)
        )


def failure_of(rank: int, error: BaseException) -> Failure:
    """Return what the other processes read of an error.

    >>> failure_of(1, ValueError("no rows")).text
    'rank 1 has failed: ValueError: no rows'
    """
    cure = f"look at the output of rank {rank}: this process has only waited for it"
    return Failure(rank, f"rank {rank} has failed: {in_a_line(error)}", cure, isinstance(error, CheckError))


def in_a_line(error: BaseException) -> str:
    """Return the type and the text of an error.

    >>> in_a_line(SystemExit())
    'SystemExit'
    """
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Seen(NamedTuple):
    """A sign of life."""

    beats: int
    place: str  # of the last message


@final
class Watch:
    """Reports the failure of this process, and finds those of others.

    Args:
        store: the store of the main thread.
        rank: of this process.
        number: of processes.
        store_ends_with: what has ended if the store has, as "rank 0".
    """

    def __init__(self, store: Store, rank: int, number: int, store_ends_with: str = "rank 0") -> None:
        self.place = "the start"  # the last message of this process: read by the thread
        self._rank, self._number, self._store = rank, number, store
        self._store_ends_with = store_ends_with
        self._ends = threading.Event()
        # A connection of its own: a store answers one request after the other.
        self._thread = threading.Thread(
            target=self._beat, args=(cast(Any, store).clone(),), daemon=True, name="signs-of-life"
        )
        self._thread.start()

    def _beat(self, store: Store) -> None:
        beats = 0
        while True:
            try:
                store.set(f"seen/{self._rank}", json.dumps(Seen(beats, self.place)))
            except RuntimeError:  # the store has ended with its process, which the main thread finds out
                return
            beats += 1
            if self._ends.wait(BEAT):
                return

    def leave(self) -> None:
        """End the thread, and note that this process asks the store for nothing more."""
        if self._ends.is_set():
            return
        self._ends.set()
        self._thread.join(BEAT)
        self._try(lambda: self._store.set(f"left/{self._rank}", ""))

    def wait_for_others(self, timeout: float) -> None:
        """Wait until the others have left the store, which ends with this process; not for those that have ended."""
        until = time.monotonic() + timeout
        known, since = self._all_seen(), time.monotonic()
        while time.monotonic() < until and not all(self._has(f"left/{rank}") for rank in range(self._number)):
            seen = self._all_seen()
            if seen != known:
                known, since = seen, time.monotonic()
            if time.monotonic() > since + SILENCE:
                return
            time.sleep(0.02)

    # ---- the first failure -----------------------------------------------------------------------------------------

    def report(self, failure: Failure) -> Failure:
        """Write a failure to the store, unless there is one; return the one that is there."""
        found = self._try(lambda: self._store.compare_set(FAILED, "", json.dumps(failure)))
        return failure if found is None else Failure(*json.loads(found))

    def failure(self, wait: float = 0.0) -> Failure | None:
        """Return the first failure, if a process has reported one.

        Args:
            wait: seconds to wait for it, after a connection to another process was lost.
        """
        until = time.monotonic() + wait
        while True:
            try:
                if self._store.check([FAILED]):
                    return Failure(*json.loads(self._store.get(FAILED)))
            except RuntimeError:
                what = f"{self._store_ends_with} ended without an error, and the store of all processes with it"
                return Failure(0, what, "was the process killed?", is_check=False)
            if time.monotonic() >= until:
                return None
            time.sleep(0.02)

    def find(self, timeout: float | None = None) -> Failure | None:
        """Return which process has failed, has ended, or does not come; None if all others are well.

        Args:
            timeout: how long this process has waited; None if it has lost its connection to another one.
        """
        failure = self.failure(wait=0.0 if timeout else 0.5)
        if failure is not None:
            return failure
        self._try(lambda: self._store.set(f"waits/{self._rank}", ""))
        before = self._all_seen()
        failure = self.failure(wait=SILENCE)
        if failure is not None:
            return failure
        now = self._all_seen()
        others = [rank for rank in range(self._number) if rank != self._rank]
        ended = [rank for rank in others if self._has(f"left/{rank}")]
        silent = [rank for rank in others if before.get(rank) == now.get(rank) and rank not in ended]
        if timeout is not None:
            late = [rank for rank in others if not self._has(f"waits/{rank}")] or others
            return self.report(late_failure(late, now, self.place, timeout, silent))
        return self.report(ended_failure(ended or silent, now, self.place)) if ended or silent else None

    def _all_seen(self) -> dict[int, Seen]:
        found = {rank: self._get(f"seen/{rank}") for rank in range(self._number)}
        return {rank: Seen(*json.loads(one)) for rank, one in found.items() if one}

    def _get(self, key: str) -> bytes | None:
        found: bytes | None = self._try(lambda: self._store.get(key) if self._store.check([key]) else None)
        return found

    def _has(self, key: str) -> bool:
        return bool(self._try(lambda: self._store.check([key])))

    @staticmethod
    def _try(ask: Any) -> Any:
        """Return what the store answers; None if it has ended, which ``failure`` reports."""
        try:
            return ask()
        except RuntimeError:
            return None


def late_failure(
    ranks: list[int], seen: dict[int, Seen], here: str, timeout: float, silent: list[int] | None = None
) -> Failure:
    """Return the failure of processes that have not come within the time.

    >>> late_failure([2], {2: Seen(8, "the start of a run")}, "the end of a batch", 60).text
    'rank 2 did not come to the end of a batch within 60 s (rank 2 was last at the start of a run)'
    """
    names = _join(f"rank {rank}" for rank in ranks)
    states = [_state(rank, seen, silent or []) for rank in ranks]
    cure = "a slow hook, or a save that takes longer? give Distributed(timeout=...) more seconds"
    what = f"{names} did not come to {here} within {timeout:g} s ({'; '.join(states)})"
    return Failure(ranks[0], what, cure, is_check=False)


def _state(rank: int, seen: dict[int, Seen], silent: list[int]) -> str:
    if rank not in seen:
        return f"rank {rank} has not begun a run"
    return f"rank {rank} was last at {seen[rank].place}{', and gives no sign of life' if rank in silent else ''}"


def ended_failure(ranks: list[int], seen: dict[int, Seen], here: str) -> Failure:
    """Return the failure of processes that have ended.

    >>> ended_failure([0, 2], {0: Seen(8, "a sum")}, "the end of a batch").text
    'rank 0 and rank 2 ended without an error, while others were at the end of a batch (rank 0 was last at a sum)'
    """
    places = "; ".join(f"rank {rank} was last at {seen[rank].place}" for rank in ranks if rank in seen)
    names = _join(f"rank {rank}" for rank in ranks)
    what = f"{names} ended without an error, while others were at {here}{f' ({places})' if places else ''}"
    cure = "was the process killed? a job that takes more memory than it has is, by the system"
    return Failure(ranks[0], what, cure, is_check=False)


def _join(names: Any) -> str:
    return " and ".join(names)


def is_of_communication(error: BaseException) -> bool:
    """Return whether an operation that processes do together has failed: torch has no class for it on all backends."""
    text = str(error)
    words = ("gloo", "NCCL", "Connection closed by peer", "process group", "Timed out waiting")
    is_of_torch = type(error).__module__.startswith(("builtins", "torch"))
    return isinstance(error, DistError) or (is_of_torch and any(word in text for word in words))


def has_timed_out(error: BaseException) -> bool:
    """Return whether an operation that processes do together has ended as its time was over."""
    return any(word in str(error) for word in ("Timed out waiting", "timed out", "timeout"))
