"""The rules of schedules, which decide whether a hook runs: the classes behind the decorators of ``schedules``.

Attributes in ``remembers`` go into checkpoints. All other state belongs to one run of one process, so that
``load_state_dict`` resets it; ``copy`` does too where a copy would share it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from train_manager.core.declarations import Function
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import HookError


@dataclass(frozen=True, slots=True)
class CallProgress:
    """How far the present training call has come."""

    run: int  # the number of the training call, which is unique in the process, also among several managers
    done: int  # steps of this training call, with the present one, so that its pre and post hooks read the same number
    total: int | None  # steps that this training call will do; None while that is unknown
    ends: Callable[[], bool]  # finds out whether the present step is the last, as far as that is known

    @property
    def is_last(self) -> bool:
        """Whether the present step is the last; if the length of the data is unknown, this looks one batch ahead."""
        return self.ends()


_calls = [0]  # the number of the last training call in this process; a list, so that functions can write it


def new_call() -> int:
    """Return a number for a training call that no other call in this process has."""
    _calls[0] += 1
    return _calls[0]


def reserve_call_number(number: int) -> int:
    """Return the number of a training call that resumes from a checkpoint; no new training call will have it."""
    _calls[0] = max(_calls[0], number)
    return number


class Counted(Schedule):
    """Base of schedules that run at certain openings of the stage, chosen by their number."""

    remembers = ("count",)

    def __init__(self) -> None:
        self.count = 0
        # Whether the hook runs, by the depth of the open stage: if a stage nests in itself, the post hook of the outer
        # stage asks after the inner stage was counted.
        self._runs: dict[int, bool] = {}

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        manager = alive.get("train_manager")
        # A stage that a resumed run opens again was counted before the checkpoint.
        if manager is None or stage.name not in manager.resumed_stages:
            self.count += 1
        self._runs[stage.depth] = self._includes(self.count)

    def should_run(self, stage: Scope) -> bool:
        return self._runs.get(stage.depth, False)  # False: the extension was added after the stage had opened

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        # A checkpoint is loaded while stages are open: their post hooks run as the loaded count decides.
        self._runs = dict.fromkeys(self._runs, self._includes(self.count))

    def copy(self) -> Self:
        made = super().copy()
        made._runs = {}  # else both copies would write the same dict
        return made

    def _includes(self, count: int) -> bool:
        """Return whether the hook runs at the opening of this number."""
        raise NotImplementedError


@final
@recorded
class Every(Counted):
    """Run at every n-th opening, and perhaps at the first one."""

    def __init__(self, n: int, first: bool) -> None:
        super().__init__()
        self.n, self.first = n, first

    def __repr__(self) -> str:
        return f"every({self.n}{', first=True' if self.first else ''})"

    def _includes(self, count: int) -> bool:
        return count % self.n == 0 or (self.first and count == 1)


@final
@recorded
class EveryOf(Schedule):
    """Run as soon as another stage has ended n more times, and perhaps when it has ended once."""

    remembers = ("count", "ran_at")

    def __init__(self, n: int, first: bool, of: str) -> None:
        self.n, self.first, self.of = n, first, of
        self.count = 0  # how often the other stage has ended
        # The count at which the hook ran last. Not the number of its turn, since `n` may differ after a checkpoint.
        self.ran_at = 0
        # The count when the schedule was asked last: until an around-hook finishes, the count continues.
        self._asked_at = 0

    def __repr__(self) -> str:
        return f"every({self.n}{', first=True' if self.first else ''}, of={self.of!r})"

    def ended(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        self.count += 1

    def should_run(self) -> bool:
        self._asked_at = self.count
        return self._turns(self.count) > self._turns(self.ran_at)

    def finished(self) -> None:
        self.ran_at = self._asked_at

    def _turns(self, count: int) -> int:
        """Return how many turns there were up to a count."""
        return count // self.n + (self.first and count > 0)


@final
@recorded
class Exponentially(Counted):
    """Run at openings with growing gaps between them."""

    def __init__(self, start: int, factor: float) -> None:
        super().__init__()
        self.start, self.factor = start, factor
        # The next opening, and the gap before it. Not rounded, so that the gaps stay exact; both may become infinite.
        self._next = self._gap = float(start)

    def __repr__(self) -> str:
        return f"exponentially({self.start}, {self.factor})"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._next = self._gap = float(self.start)  # `_includes` walks from here to the loaded count
        super().load_state_dict(state)

    def _includes(self, count: int) -> bool:
        while count >= self._next + 0.5:  # that opening is past; `round(inf)` would raise an error
            self._gap *= self.factor
            self._next += self._gap
        return count >= self._next - 0.5


@final
@recorded
class AtMost(Schedule):
    """Run at most n times in each run, spread over its steps, and at its last step."""

    remembers = ("_times", "_last")

    def __init__(self, n: int) -> None:
        self.n = n
        self._run: int | None = None  # the present run; None before the first, and as a run resumes from a checkpoint
        self._times = 0  # how often the hook has run in this run
        self._last = 0  # the step at which it last ran
        self._step = 0  # the present step

    def __repr__(self) -> str:
        return f"at_most({self.n})"

    def should_run(self, train_manager: Any = None) -> bool:
        progress = _progress_of(train_manager, self)
        # Another run begins. After a checkpoint, `_run` is None, and only a smaller step shows that a run begins anew.
        if progress.done < self._last or self._run not in (None, progress.run):
            self._times = self._last = 0
        self._run, self._step = progress.run, progress.done
        if progress.done <= self._last:  # the stage opens more than once in a step
            return False
        return progress.is_last or progress.done >= self._next_step(progress.total)

    def finished(self) -> None:
        self._times += 1
        self._last = self._step

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._run = None

    def _next_step(self, total: int | None) -> float:
        """Return the step from which on the hook may run again."""
        left = self.n - self._times
        # The steps that are left, divided by the times that are left. An estimated total may be past already.
        if total is not None and total > self._last:
            return self._last + max(1, math.ceil((total - self._last) / max(1, left)))
        # The end is unknown: steps 1, 2, 4, 8, ...
        return max(1, 2 * self._last) if left > 0 else math.inf


@final
@recorded
class Periodically(Schedule):
    """Run when a time has passed since the hook ran last."""

    remembers = ("elapsed",)

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.elapsed = 0.0  # seconds since the hook ran last, without the time between runs
        self._measured_at: float | None = None  # the moment up to which `elapsed` is measured; None: not in this run
        self._run: int | None = None  # the present run; None if there is no TrainManager

    def __repr__(self) -> str:
        return f"periodically({self.seconds:g})"

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        manager = alive.get("train_manager")
        run = None if manager is None else manager.progress.run
        if run != self._run:
            self._run, self._measured_at = run, None  # the time since the last measurement was between two runs
        self._measure()

    def should_run(self, stage: Scope) -> bool:
        self._measure()
        return self.elapsed >= self.seconds

    def finished(self) -> None:
        self.elapsed, self._measured_at = 0.0, self.clock()

    def state_dict(self) -> dict[str, Any]:
        # A checkpoint may be saved long after the last measurement. Saving must not change the schedule, so that the
        # time since is added to the copy only.
        since = 0.0 if self._measured_at is None else self.clock() - self._measured_at
        return {"elapsed": self.elapsed + since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._measured_at = None

    def _measure(self) -> None:
        now = self.clock()
        self.elapsed += 0.0 if self._measured_at is None else now - self._measured_at
        self._measured_at = now


@final
@recorded
class OrAtEnd(Schedule):
    """Run when another schedule does, and once at the last step of each run, whatever the other one says there."""

    def __init__(self, other: Exponentially | Periodically) -> None:
        self.other = other
        self._ending: int | None = None  # the present run if it is at its last step, else None
        self._ended: int | None = None  # the last run at whose last step the hook has run

    def __repr__(self) -> str:
        return f"{str(self.other)[:-1]}, at_end=True)"

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        self.other.opened(stage, alive)

    def should_run(self, stage: Scope, train_manager: Any = None) -> bool:
        progress = _progress_of(train_manager, self)
        is_last = progress.is_last
        self._ending = progress.run if is_last else None
        runs = self.other.should_run(stage)  # called at the last step too: `Periodically` measures its time in it
        return self._ended != progress.run if is_last else runs

    def finished(self) -> None:
        self.other.finished()
        if self._ending is not None:
            self._ended = self._ending

    def state_dict(self) -> dict[str, Any]:
        return self.other.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.other.load_state_dict(state)
        self._ended = None  # a run that resumes has another number

    def copy(self) -> Self:
        made = super().copy()
        made.other = self.other.copy()
        return made


@final
@recorded
class Once(Schedule):
    """Run until the hook has run."""

    remembers = ("has_run",)

    def __init__(self) -> None:
        self.has_run = False

    def __repr__(self) -> str:
        return "once"

    def __call__(self, *hook: Function) -> Function:
        if not hook:
            raise HookError("once is a decorator without brackets, but was called", name="once", cure="write @once")
        return super().__call__(*hook)

    def should_run(self) -> bool:
        return not self.has_run

    def finished(self) -> None:
        self.has_run = True


@final
@recorded
class When(Schedule):
    """Run if a function of fixtures returns something true."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.should_run = function  # no method around it: the parameters of the function itself name the fixtures

    def __repr__(self) -> str:
        return f"when({getattr(self.should_run, '__name__', self.should_run)})"


def _progress_of(train_manager: Any, schedule: Schedule) -> CallProgress:
    """Return the progress of the training call; refuse an Extensible that does not know its end."""
    if train_manager is None:
        raise HookError(
            f"@{schedule} must know when the training ends, but there is no TrainManager",
            name="train_manager",
            asked_by=f"@{schedule}",
            cure="add the extension to a TrainManager, or use a schedule that needs no end: @every(50)",
        )
    progress: CallProgress = train_manager.progress
    return progress
