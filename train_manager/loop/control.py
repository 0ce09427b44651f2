"""What hooks read of the loop and request of it: how far it is, ``stop``, ``end_epoch``, ``eval_soon``."""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Any

from torch.optim import Optimizer

from train_manager.core.errors import InputError, StageError
from train_manager.loop.feed import Feed
from train_manager.loop.overridable import OverridableMethods
from train_manager.loop.requests import Requests
from train_manager.loop.run_state import Counts, RunState
from train_manager.loop.windows import Windows
from train_manager.schedules.rules import Progress
from train_manager.validation import require_one_of


def _counted(name: str) -> Any:
    """Make an attribute that is kept in ``_counts``."""
    return property(attrgetter(f"_counts.{name}"), lambda manager, value: setattr(manager._counts, name, value))


class LoopControl(OverridableMethods):
    """The side of the loop that hooks see."""

    epoch_num: int = _counted("epoch_num")
    step_num: int = _counted("step_num")
    update_num: int = _counted("update_num")
    samples_seen: Any = _counted("samples_seen")
    optimizer_updates: dict[str, int] = _counted("optimizer_updates")

    optimizer: Any
    _run: RunState  # of the present or last run
    _counts: Counts
    _feed: Feed
    _windows: Windows
    _step_seconds: deque[float]

    # ---- requests ------------------------------------------------------------------------------------------------

    def stop(self, reason: str, at: str = "step") -> None:
        """End the run after this step, or with ``at="epoch"`` after this epoch; all hooks run as in any other end.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        path = self.fixtures.path
        if "run" not in path:
            raise StageError("stop() was called, but no run is open", stages=path)
        asker = self._store.running
        self._run.stop(reason, at, f"{asker.label} at {' > '.join(path)}" if asker is not None else None)

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins. Outside an epoch it is void."""
        if "train_step_epoch" in self.fixtures.path:
            self._run.epoch_end_requested = True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves."""
        self._run.eval_requested = True

    def decide(self, requests: Requests) -> Requests:
        """Return what the loop does of what was requested: all of it. It looks at requests nowhere else.

        An extension may replace it, so that processes agree: ``train_manager.decide = self.agree``. It is called in
        each process twice for each batch, and around each epoch, whether or not something was requested. A request may
        be added, but one that was made cannot be taken back.
        """
        return requests

    # ---- how far the loop is -------------------------------------------------------------------------------------

    @property
    def start_step(self) -> int:
        return self._run.start_step

    @property
    def end_step(self) -> int | None:
        return self._run.end_step

    @property
    def stop_reason(self) -> str | None:
        return self._run.stop_reason

    @property
    def datasource_name(self) -> str:
        return self._feed.datasource_name

    @property
    def progress(self) -> Progress:
        """How far the present or last training call has come."""
        run = self._run
        end = run.expected_end if run.end_step is None else run.end_step
        total = None if end is None else end - run.start_step
        return Progress(run.call, self.step_num + run.batch_is_alive - run.start_step, total, self._is_last_step)

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: with fractions and decimals it takes a while

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    def _is_last_step(self) -> bool:
        run = self._run
        if run.stop_at == "step" or self.step_num + run.batch_is_alive == run.end_step:
            return True
        ends_with_epoch = run.is_last_epoch or run.stop_at == "epoch"
        return ends_with_epoch and (run.epoch_end_requested or self._is_last_batch())

    def _is_last_batch(self) -> bool:
        return self._run.own_last_batch if self._run.own_batches else self._feed.is_last()

    # ---- optimizers ----------------------------------------------------------------------------------------------

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name; a sole one is called "optimizer"."""
        if isinstance(self.optimizer, dict):
            return self.optimizer
        return {} if self.optimizer is None else {"optimizer": self.optimizer}

    @property
    def open_windows(self) -> tuple[str, ...]:
        """The names of the optimizers with gradients that no step has used yet."""
        return tuple(self._windows.names())

    def _optimizer_name(self, name: str | None, method: str) -> str:
        """Return the name of an optimizer; a sole one need not be named.

        Raises:
            InputError: the name is missing or unknown.
        """
        names = self.optimizers
        if name in names:
            return name
        if name is None and len(names) == 1:
            return next(iter(names))
        known = " and ".join(map(repr, names)) or "none"
        what = f"{method}() needs the name of an optimizer" if name is None else f"there is no optimizer {name!r}"
        cure = f"name one: {method}(..., optimizer={next(iter(names), 'optimizer')!r})"
        raise InputError(f"{what}; the optimizers are {known}", name="optimizer", cure=cure)
