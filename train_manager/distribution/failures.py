"""Which process has failed, has ended, or does not come: found out by a store that all processes read.

A process that waits in a collective operation learns nothing of the others. So the first failure is written to the
store, where waiting processes look. Each process also writes there that it has left, and that it has waited too long.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final, NamedTuple, final

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store

from train_manager.distribution.environment import Environment
from train_manager.telling.errors import CheckError, RankError

GRACE: Final = 2.0
"""Seconds for which a process that has waited too long looks which others have too: they began to wait a bit later."""

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


@final
class FailureWatch:
    """Reports the failure of this process, and finds those of others.

    Args:
        store: the store of all processes.
        environment: the place of this process, and whether torchrun has the store.
    """

    def __init__(self, store: Store, environment: Environment) -> None:
        self.place = "the start"  # the last message of this process
        self.passed = ""  # the last message that all processes have sent
        self._store, self._environment = store, environment
        self._rank, self._number = environment.place
        self._has_left = False

    def leave(self) -> None:
        """Note that this process asks the store for nothing more."""
        if not self._has_left:
            self._has_left = True
            self._note_left([self._rank])

    def wait_for_others(self, timeout: float) -> None:
        """Wait until the others have left the store, which ends with this process."""
        until = time.monotonic() + timeout
        while time.monotonic() < until and not all(self._has(f"left/{rank}") for rank in range(self._number)):
            time.sleep(0.02)

    def _note_left(self, ranks: list[int]) -> None:
        for rank in ranks:
            self._set(f"left/{rank}")

    # ---- the first failure -----------------------------------------------------------------------------------------

    def report(self, failure: Failure) -> Failure:
        """Write a failure to the store, unless there is one; return the one that is there."""
        found = self._try(lambda: self._store.compare_set(FAILED, "", json.dumps(failure)))
        return failure if found is None else Failure(*json.loads(found))

    def failure(self) -> Failure | None:
        """Return the first failure, if a process has reported one."""
        try:
            return Failure(*json.loads(self._store.get(FAILED))) if self._store.check([FAILED]) else None
        except RuntimeError:
            holder = self._environment.store_ends_with
            what = f"{holder} ended without an error, and the store of all processes with it"
            return Failure(0, what, "was the process killed?", is_check=False)

    def find(self, timeout: float, *, has_waited: bool) -> Failure | None:
        """Return which process has failed, has ended, or does not come; None if that is not known.

        Args:
            timeout: the seconds after which a process that does not come has failed.
            has_waited: whether this process has waited so long; else it has lost its connection to another one, and
                waits now until the others notice that too.
        """
        self._set(f"waits/{self._rank}")
        # torchrun names a process that was killed, and waits for the others to end.
        is_short = has_waited or self._environment.is_of_torchrun
        until = time.monotonic() + (GRACE if is_short else timeout)
        while True:
            failure = self.failure()
            if failure is not None:
                return failure
            missing = [rank for rank in range(self._number) if not self._has(f"waits/{rank}")]
            ended = [rank for rank in missing if self._has(f"left/{rank}")]
            if ended:
                return self.report(ended_failure(ended, self.place, self.passed))
            if not missing or time.monotonic() > until:
                return self._report_missing(missing, timeout if has_waited else None)
            time.sleep(0.02)

    def _report_missing(self, ranks: list[int], timeout: float | None) -> Failure | None:
        if timeout is not None:
            late = ranks or [rank for rank in range(self._number) if rank != self._rank]
            failure = self.report(late_failure(late, self.place, self.passed, timeout))
        elif ranks and not self._environment.is_of_torchrun:
            failure = self.report(ended_failure(ranks, self.place, self.passed))
        else:
            return None
        self._note_left(ranks)  # else the host of the store would wait for these again as it ends
        return failure

    def _set(self, key: str) -> None:
        self._try(lambda: self._store.set(key, ""))

    def _has(self, key: str) -> bool:
        return bool(self._try(lambda: self._store.check([key])))

    @staticmethod
    def _try(ask: Any) -> Any:
        """Return what the store answers; None if it has ended, which ``failure`` reports."""
        try:
            return ask()
        except RuntimeError:
            return None


def late_failure(ranks: list[int], here: str, passed: str, timeout: float) -> Failure:
    """Return the failure of processes that have not come within the time.

    >>> late_failure([2], "the end of a batch", "the start of a run", 60).text
    'rank 2 did not come to the end of a batch within 60 s (rank 2 was last at the start of a run)'
    """
    what = f"{_names(ranks)} did not come to {here} within {timeout:g} s{_after(ranks, passed)}"
    cure = "a slow hook, or a save that takes longer? give Distributed(timeout=...) more seconds"
    return Failure(ranks[0], what, cure, is_check=False)


def ended_failure(ranks: list[int], here: str, passed: str) -> Failure:
    """Return the failure of processes that have ended.

    >>> ended_failure([1], "the end of a batch", "a sum").text
    'rank 1 ended without an error, while others were at the end of a batch (rank 1 was last at a sum)'
    """
    what = f"{_names(ranks)} ended without an error, while others were at {here}{_after(ranks, passed)}"
    cure = "was the process killed? a job that takes more memory than it has is, by the system"
    return Failure(ranks[0], what, cure, is_check=False)


def _names(ranks: list[int]) -> str:
    return " and ".join(f"rank {rank}" for rank in ranks)


def _after(ranks: list[int], passed: str) -> str:
    verb = "was" if len(ranks) == 1 else "were"
    return f" ({_names(ranks)} {verb} last at {passed})" if passed else ""


def is_of_communication(error: BaseException) -> bool:
    """Return whether an operation that processes do together has failed: torch has no class for it on all backends."""
    text = str(error)
    words = ("gloo", "NCCL", "Connection closed by peer", "process group", "Timed out waiting")
    is_of_torch = type(error).__module__.startswith(("builtins", "torch"))
    return isinstance(error, DistError) or (is_of_torch and any(word in text for word in words))


def has_timed_out(error: BaseException) -> bool:
    """Return whether an operation that processes do together has ended as its time was over."""
    return any(word in str(error) for word in ("Timed out waiting", "timed out", "timeout"))
