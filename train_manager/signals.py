"""Runs that are stopped from outside the process: by SIGTERM, by Ctrl-C (SIGINT), or by SIGUSR1.

::

    first signal, in a call       a note to the loop: it ends the run after this step, and the signal follows as the
                                  exception of its kind once the run has closed
    first signal, elsewhere       the exception, at once: between two training calls there is no step to finish
    second signal                 the exception, at once

The exception is KeyboardInterrupt for SIGINT, ``SystemExit(143)`` for SIGTERM, ``SystemExit(99)`` for SIGUSR1. A
handler runs between any two bytecodes of the main thread, so it changes nothing of the loop but this note.
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
    """An object that signal handlers can stop, as a TrainManager."""

    def stop_from_outside(self, reason: str) -> bool: ...


@contextmanager
def stop_on_signals(
    training: Stoppable, *, saves: bool = True, requeue_exit_code: int = 99, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Let SIGTERM, Ctrl-C and SIGUSR1 end a run in a ``with`` block, and then the process.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager()
    >>> with stop_on_signals(tm):
    ...     result = tm.train()

    The handlers that were there before are restored as the block ends, in whatever way. If the block fails, its error
    comes out. A block inside another one adds its training to those that end; the exception leaves the outer block.

    Left alone is a signal that is ignored, as by ``nohup``, and a signal with a handler of the program's own, with a
    warning. In a notebook only Ctrl-C is taken, and in a thread that is not the main one no signal is. In a process
    that was forked in the block, as a worker of a DataLoader, SIGUSR1 and the first Ctrl-C do nothing, because the main
    process may need the worker for its last step. SIGTERM ends the worker; then the loop waits for no more data, and
    the run ends.

    Args:
        training: its ``stop_from_outside`` is called by the first signal.
        saves: whether the message says that a checkpoint is written.
        requeue_exit_code: of SIGUSR1, which clusters send before the time is up: 99 asks Grid Engine to queue the job
            again, 85 HTCondor; for Slurm the job's script does it: ``[ $? = 99 ] && scontrol requeue $SLURM_JOB_ID``.
        clock: returns seconds.

    Yields:
        A function that raises the exception of the signal, if one has come. It is called at the start of a training
        call, in a run that the program holds open: a program that trains until something is reached must end too.
    """
    outer = _Handlers.installed
    if threading.current_thread() is not threading.main_thread():
        yield _nothing
    elif outer is not None and outer.pid == os.getpid():
        outer.trainings.append(training)
        try:
            yield _nothing  # this run is inside a hook of the outer one, and the hook must come to its end
        finally:
            outer.trainings.remove(training)
    else:
        handlers = _Handlers(training, saves, requeue_exit_code, clock)
        try:
            handlers.install()
            yield handlers.raise_first
        except RuntimeError as error:
            # The same signal has ended a worker of a DataLoader: the signal is the cause, not the error of the loader.
            if "DataLoader worker" in str(error):
                handlers.raise_first()
            raise
        finally:
            handlers.restore()
        handlers.raise_first()  # the run has ended without an error, as the loop has followed the note


def wait_for_the_signal_of_a_worker(error: Exception) -> None:
    """Wait a moment if a signal has killed a worker of a DataLoader: it may be about to reach this process too."""
    if "DataLoader worker" in str(error) and "signal" in str(error):
        time.sleep(SAME_SIGNAL)


def where_it_goes_on(step: int, saved_at: int | None) -> str:
    """Return what a run that is left has saved, and how to resume.

    >>> where_it_goes_on(5, saved_at=4)
    'with Checkpoints(resume=True) the program goes on from step 4, which is saved'

    Args:
        step: how many steps are done.
        saved_at: the step of the last checkpoint of the run; None if the run has saved none.
    """
    if saved_at is None:
        return "this run has saved no checkpoint (the extension Checkpoints saves and resumes)"
    which = "this step" if saved_at == step else f"step {saved_at}"
    return f"with Checkpoints(resume=True) the program goes on from {which}, which is saved"


def is_at_a_prompt() -> bool:
    """Return whether a person calls the training at a prompt or in a notebook, and no program does."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _nothing() -> None: ...


@final
class _Handlers:
    """The handlers of one run, and of the runs inside its hooks."""

    installed: _Handlers | None = None  # the present object: a process has one handler for each signal

    def __init__(self, training: Stoppable, saves: bool, requeue_exit_code: int, clock: Callable[[], float]) -> None:
        self.trainings = [training]  # the trainings that the first signal ends
        self.first: signal.Signals | None = None  # the signal that has ended them
        self.pid = os.getpid()  # the process that has installed the handlers; a forked process inherits them
        self.before: dict[signal.Signals, Any] = {}  # the handlers that are restored at the end
        self._saves = saves
        self._requeue_exit_code = requeue_exit_code
        self._clock = clock
        self._first_at = 0.0  # the time of the first signal
        self._interrupts_of_child = 0  # how many SIGINT this process got, if it is a forked one
        self._loader_handler: Any = None  # the handler of torch for the end of a worker, while it is switched off

    def install(self) -> None:
        """Replace the default handlers of the signals."""
        _Handlers.installed = self
        for number in _signals():
            handler = signal.getsignal(number)
            if handler is signal.SIG_IGN:
                continue
            if handler not in (signal.SIG_DFL, signal.default_int_handler):
                warnings.warn(
                    f"{number.name} has a handler of the program's own, which is left alone: {number.name} ends no "
                    "run with a checkpoint (call tm.stop_from_outside(reason) in that handler)",
                    stacklevel=users_level(),
                )
                continue
            self.before[number] = handler
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the former handlers back, except where the program has installed another one since."""
        for number, handler in self.before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        if self._loader_handler is not None:
            signal.signal(signal.SIGCHLD, self._loader_handler)
        _Handlers.installed = None

    def raise_first(self) -> None:
        """Raise the exception of the first signal, if one has come."""
        if self.first is not None:
            raise self.exception(self.first)

    def exception(self, number: signal.Signals) -> BaseException:
        """Return the exception of a signal."""
        if number is signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(143 if number is signal.SIGTERM else self._requeue_exit_code)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        number = signal.Signals(signum)
        if os.getpid() != self.pid:
            self._handle_in_child(number)
        elif self.first is None:
            takes_note = [training.stop_from_outside(number.name) for training in self.trainings]
            if not any(takes_note):  # no training call is under way, so there is no step to finish
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
        """Let the step continue if workers of a DataLoader end."""
        # A cluster sends its signals to all processes of a job. As a worker ends, torch's handler of SIGCHLD would
        # raise an error in the middle of the step. Without this handler, the loop gets the error if it asks the loader
        # for more data.
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
        if str(getattr(handler, "__module__", "")).startswith("torch.utils.data"):
            self._loader_handler = handler
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _handle_in_child(self, number: signal.Signals) -> None:
        """Handle a signal in a worker of a DataLoader, or in another process that was forked in the block."""
        if number is signal.SIGTERM:
            # The default handler again, and the signal once more: the process ends as if this handler were not there.
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


def _say(message: str) -> None:
    """Write a line to stderr, without Python's file object: the signal may have come while it was writing."""
    # A progress bar may stand in the line of the cursor, and others below it: the message begins below the first one,
    # and erases the others, of which the end would stay behind the message. They are drawn again below it.
    start = "\n\x1b[J" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{start}{message}\n".encode())
