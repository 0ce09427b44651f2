"""When a hook runs: the decisions behind the decorators of ``schedules``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple, Self, final

from train_manager.core.decorators import Function
from train_manager.core.errors import HookError
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope


class Progress(NamedTuple):
    """Where training stands, as schedules ask for it.

    Attributes:
        run: changes with each training call, and is never that of another manager.
        done: steps of this call, the one that is alive included: the same in its pre and post hooks.
        total: steps that this call will do; None while that is unknown.
        is_last: no further step of this call will follow, as far as is known.
    """

    run: int
    done: int
    total: int | None
    is_last: bool


_numbers = count(1)


def new_call() -> int:
    """A number for a training call."""
    return next(_numbers)


_NO_HOOK: Any = object()


class Counted(Schedule):
    """One that is of certain openings of the stage."""

    remembers = ("count",)

    def __init__(self) -> None:
        self.count = 0
        self._runs: dict[int, bool] = {}  # by depth: a stage may nest in itself, and the outer one ends later

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        self.count += 1
        self._runs[stage.depth] = self._falls_on(self.count)

    def should_run(self, stage: Scope) -> bool:
        return self._runs.get(stage.depth, False)

    def copy(self) -> Self:
        made = super().copy()
        made._runs = {}
        return made

    def _falls_on(self, count: int) -> bool:
        raise NotImplementedError


@final
class Every(Counted):
    """Every n-th opening."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def __repr__(self) -> str:
        return f"every({self.n})"

    def _falls_on(self, count: int) -> bool:
        return count % self.n == 0


@final
class Exponentially(Counted):
    """Openings with gaps that grow."""

    def __init__(self, start: int, factor: float) -> None:
        super().__init__()
        self.start, self.factor = start, factor
        self._next = self._gap = float(start)

    def __repr__(self) -> str:
        return f"exponentially({self.start}, {self.factor})"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._next = self._gap = float(self.start)  # the way is walked again, up to the count

    def _falls_on(self, count: int) -> bool:
        while count >= self._next + 0.5:  # that one is past; compared as floats, for it may be infinite
            self._gap *= self.factor
            self._next += self._gap
        return count >= self._next - 0.5


@final
class AtMost(Schedule):
    """So many times in each run, spread over its steps."""

    remembers = ("_times", "_last")

    def __init__(self, n: int) -> None:
        self.n = n
        self._run: int | None = None  # None: none yet, or one that goes on from a checkpoint
        self._times = 0  # that the hook has run, in this run
        self._last = 0  # at which step it did
        self._now = 0

    def __repr__(self) -> str:
        return f"at_most({self.n})"

    def should_run(self, train_manager: Any = None) -> bool:
        progress = _progress_of(train_manager, self)
        if progress.done < self._last or self._run not in (None, progress.run):
            self._times = self._last = 0
        self._run, self._now = progress.run, progress.done
        if progress.done <= self._last:  # the stage opens more than once in a step
            return False
        return progress.is_last or progress.done >= self._next(progress.total)

    def finished(self) -> None:
        self._times += 1
        self._last = self._now

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._run = None

    def _next(self, total: int | None) -> float:
        """The step at which it is due again."""
        left = self.n - self._times
        if total is not None and total > self._last:
            return self._last + max(1, math.ceil((total - self._last) / max(1, left)))
        return max(1, 2 * self._last) if left > 0 else math.inf


@final
class Periodically(Schedule):
    """A time after the hook has run."""

    remembers = ("elapsed",)

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds, self.clock = seconds, clock
        self.elapsed = 0.0  # since the hook has run, pauses left out
        self._seen: float | None = None  # the last moment that is in it
        self._run: int | None = None

    def __repr__(self) -> str:
        return f"periodically({self.seconds:g})"

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        manager = alive.get("train_manager")
        run = None if manager is None else manager.progress.run
        if run != self._run:
            self._run, self._seen = run, None  # what has passed since then was a pause
        self._pass()

    def should_run(self, stage: Scope) -> bool:
        self._pass()
        return self.elapsed >= self.seconds

    def finished(self) -> None:
        self.elapsed, self._seen = 0.0, self.clock()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._seen = None

    def _pass(self) -> None:
        now = self.clock()
        self.elapsed += 0.0 if self._seen is None else now - self._seen
        self._seen = now


@final
class OrAtEnd(Schedule):
    """Another schedule, and beside it the last step of each run: once, whatever the other one says of that step."""

    def __init__(self, other: Exponentially | Periodically) -> None:
        self.other = other
        self._ending: int | None = None  # the run that is in its last step
        self._ended: int | None = None  # the run at whose end the hook has run

    def __repr__(self) -> str:
        return f"{str(self.other)[:-1]}, at_end=True)"

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        self.other.opened(stage, alive)

    def should_run(self, stage: Scope, train_manager: Any = None) -> bool:
        progress = _progress_of(train_manager, self)
        self._ending = progress.run if progress.is_last else None
        falls_here = self.other.should_run(stage)
        return self._ended != progress.run if progress.is_last else falls_here

    def finished(self) -> None:
        self.other.finished()
        if self._ending is not None:
            self._ended = self._ending

    def state_dict(self) -> dict[str, Any]:
        return self.other.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.other.load_state_dict(state)
        self._ended = None  # what goes on is another run

    def copy(self) -> Self:
        made = super().copy()
        made.other = self.other.copy()
        return made


@final
class Once(Schedule):
    """Until the hook has run."""

    remembers = ("has_run",)

    def __init__(self) -> None:
        self.has_run = False

    def __repr__(self) -> str:
        return "once"

    def __call__(self, hook: Function = _NO_HOOK) -> Function:
        if hook is _NO_HOOK:
            raise HookError("once() was called, but takes nothing", name="once", cure="write @once, without brackets")
        return super().__call__(hook)

    def should_run(self) -> bool:
        return not self.has_run

    def finished(self) -> None:
        self.has_run = True


@final
class When(Schedule):
    """Where a function of fixtures says so."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.should_run = function

    def __repr__(self) -> str:
        return f"when({getattr(self.should_run, '__name__', self.should_run)})"


def _progress_of(train_manager: Any, schedule: Schedule) -> Progress:
    if train_manager is None:
        raise HookError(
            f"@{schedule} must know where the training ends, and there is no TrainManager",
            name="train_manager",
            asked_by=f"@{schedule}",
            cure="add the extension to a TrainManager, or take a schedule that knows no end: @every(50)",
        )
    progress: Progress = train_manager.progress
    return progress
