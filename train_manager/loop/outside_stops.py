"""Runs that are stopped from outside the process: by SIGTERM, by Ctrl-C (SIGINT), or by SIGUSR1.

::

    first signal, in a training   a note to the loop: it ends the run after this step, and the signal follows as the
                                  exception of its kind once the run has closed
    first signal, elsewhere       the exception, at once: between two trainings there is no step to finish
    second signal                 the exception, at once

The exception is KeyboardInterrupt for SIGINT, ``SystemExit(143)`` for SIGTERM, ``SystemExit(99)`` for SIGUSR1. A
handler runs between any two bytecodes of the main thread, so it changes nothing of the loop but its note.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, final

from train_manager.telling.source_locations import users_level

SAME_SIGNAL: Final = 0.2
"""Seconds in which a signal that comes again is the same one: a terminal or a cluster sends it to all processes of a
group, and a launcher among them passes it on."""


class Stoppable(Protocol):
    """What a training offers to signal handlers, as a TrainManager does."""

    def stop_from_outside(self, reason: str) -> bool: ...


@contextmanager
def stopped_by_signals(
    training: Stoppable, *, saves: bool = True, requeue_exit_code: int = 99, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Let SIGTERM, Ctrl-C and SIGUSR1 end the run of a training in a ``with`` block, and then the process.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager()
    >>> with stopped_by_signals(tm):
    ...     result = tm.train()

    The handlers that were there before are restored as the block ends, in whatever way. If it fails, its error is what
    comes out. A block inside another one adds its training to those that end; the exception leaves the outer block.

    Left alone is a signal that is ignored, as by ``nohup``, and one that has a handler of the program's own, with a
    warning. In a notebook only Ctrl-C is taken, and in a thread that is not the main one nothing is. In a process that
    was forked in the block, as a worker of a DataLoader, SIGUSR1 and the first Ctrl-C do nothing, for the main process
    may need it for its last step. SIGTERM ends it; then no more data is waited for, and the run ends.

    Args:
        training: is told of the first signal.
        saves: whether the message says that a checkpoint is written.
        requeue_exit_code: of SIGUSR1, which clusters send before the time is up: 99 asks Grid Engine to queue the job
            again, 85 HTCondor; for Slurm the job's script does it: ``[ $? = 99 ] && scontrol requeue $SLURM_JOB_ID``.
        clock: returns seconds.

    Yields:
        A function that raises the exception of the signal, if one has come: for the start of a training, in a run
        that the program holds open, and perhaps trains in until something is reached.
    """
    outer = _Handlers.installed
    if threading.current_thread() is not threading.main_thread():
        yield _nothing
    elif outer is not None and outer.pid == os.getpid():
        outer.trainings.append(training)
        try:
            yield _nothing  # the hook around this run must come to its end
        finally:
            outer.trainings.remove(training)
    else:
        handlers = _Handlers(training, saves, requeue_exit_code, clock)
        try:
            handlers.install()
            yield handlers.raise_first
        except RuntimeError as error:
            if "DataLoader worker" in str(error):  # which the same signal has ended
                handlers.raise_first()
            raise
        finally:
            handlers.restore()
        handlers.raise_first()


def wait_for_the_signal_of_a_worker(error: Exception) -> None:
    """Wait a moment if a signal has killed a worker of a DataLoader: it may be about to reach this process too."""
    if "DataLoader worker" in str(error) and "signal" in str(error):
        time.sleep(SAME_SIGNAL)


def _nothing() -> None: ...


@final
class _Handlers:
    """The handlers of one run, and of the runs inside its hooks.

    Attributes:
        trainings: those that the first signal ends.
        first: the signal that has ended them; None before.
        pid: the process that they belong to; one that is forked has them too.
        before: the handlers that they replace.
    """

    installed: _Handlers | None = None

    def __init__(self, training: Stoppable, saves: bool, requeue_exit_code: int, clock: Callable[[], float]) -> None:
        self.trainings = [training]
        self.first: signal.Signals | None = None
        self.pid = os.getpid()
        self.before: dict[signal.Signals, Any] = {}
        self._saves = saves
        self._requeue_exit_code = requeue_exit_code
        self._clock = clock
        self._first_at = 0.0
        self._interrupts_of_child = 0
        self._loader_handler: Any = None

    # ---- in and out ----------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Replace the default handlers of the signals."""
        _Handlers.installed = self
        for number in _signals():
            handler = signal.getsignal(number)
            if handler is signal.SIG_IGN:
                continue
            if handler not in (signal.SIG_DFL, signal.default_int_handler) or _is_handled_elsewhere(number, handler):
                warnings.warn(
                    f"{number.name} has a handler of the program's own, which is left alone: {number.name} ends no "
                    "training with a checkpoint (call tm.stop_from_outside(reason) in that handler)",
                    stacklevel=users_level(),
                )
                continue
            self.before[number] = handler
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the former handlers back, but for those that something else has replaced since."""
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        if self._loader_handler is not None:
            signal.signal(signal.SIGCHLD, self._loader_handler)
        _Handlers.installed = None

    def raise_first(self) -> None:
        """Raise what the first signal raises, if one has come."""
        if self.first is not None:
            raise self.exception(self.first)

    def exception(self, number: signal.Signals) -> BaseException:
        """Return what a signal raises."""
        if number is signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(143 if number is signal.SIGTERM else self._requeue_exit_code)

    # ---- the handler ---------------------------------------------------------------------------------------------

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        number = signal.Signals(signum)
        if os.getpid() != self.pid:
            self._handle_in_child(number)
        elif self.first is None:
            told = [training.stop_from_outside(number.name) for training in self.trainings]
            if not any(told):
                raise self.exception(number)
            self.first, self._first_at = number, self._clock()
            self._let_workers_end()
            _say(f"{number.name}: ending after this step{self._with_checkpoint}; a second one ends at once")
        elif number is not self.first or self._clock() - self._first_at > SAME_SIGNAL:
            raise self.exception(number)

    @property
    def _with_checkpoint(self) -> str:
        return ", with a checkpoint" if self._saves else ""

    def _let_workers_end(self) -> None:
        """Let the step go on if workers of a DataLoader end: a cluster sends its signals to all processes of a job.

        torch would raise an error wherever the main thread is. If the loop asks for more data, it gets the error then.
        """
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
        if str(getattr(handler, "__module__", "")).startswith("torch.utils.data"):
            self._loader_handler = handler
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _handle_in_child(self, number: signal.Signals) -> None:
        if number is signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif number is signal.SIGINT:
            self._interrupts_of_child += 1
            if self._interrupts_of_child > 1:
                raise KeyboardInterrupt


def _signals() -> list[signal.Signals]:
    """Return the signals that this platform and this kind of program have."""
    if getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)() is not None:
        return [signal.SIGINT]  # a cell that exits does not end its kernel
    return [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


def _is_handled_elsewhere(number: signal.Signals, handler: Any) -> bool:
    """Return whether a handler was installed past Python, as by ``faulthandler.register``; known on Linux only."""
    if handler is not signal.SIG_DFL:
        return False
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        caught = next((line.split()[1] for line in status if line.startswith("SigCgt:")), "0")
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False


def _say(message: str) -> None:
    """Write a line to stderr past Python's file, in the middle of whose writing the signal may have come."""
    start = "\n" if os.isatty(2) else ""  # perhaps a progress bar stands there
    with contextlib.suppress(OSError):
        os.write(2, f"{start}{message}\n".encode())
