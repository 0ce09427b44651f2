"""A thread that sends the new rows of ``metrics.sqlite`` to a sink while a run is open.

So a sink has no hook in a step, and cannot stop a run. Rows that could not be sent are sent later, from the file.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from pathlib import Path
from typing import Final, final

from train_manager.runs.record.processes import this_process
from train_manager.runs.sending.sink_feed import MakesSink, SinkFeed
from train_manager.runs.sending.unsent import unsent

EVERY: Final = 1.0  # seconds between two looks at the file
PATIENCE: Final = 10.0  # seconds that the end of a run waits for a sink
SHARE: Final = 0.02  # share of the interpreter's time that the thread takes while the training runs


@final
class Follower:
    """Follows the runs of one TrainManager for one sink.

    Args:
        train_dir: the folder with ``metrics.sqlite``.
        run: the run_id. The runs that this sink was sent before in this folder are followed to their ends too.
        name: of the sink, as ``train-manager export --to`` calls it.
        make: makes the sink.
    """

    def __init__(self, train_dir: Path, run: str, name: str, make: MakesSink) -> None:
        self._train_dir, self._run, self._name, self._make = train_dir, run, name, make
        self._feed: SinkFeed | None = None  # from the first sending on; None after an error, until the next sending
        self._thread: threading.Thread | None = None  # the thread of the last `begin`
        self._ending = threading.Event()  # set by `end`; each thread has its own
        self._has_warned = False  # a sink that fails is reported once, and not each second
        self._unreported = ""  # the error that could not be warned of in the thread

    def begin(self) -> None:
        """Follow, until ``end``."""
        if self._thread is None or self._ending.is_set():
            # A thread that hung as the run before ended still has the old event, and must not wake up by this one.
            self._ending = threading.Event()
            thread = threading.Thread(target=self._follow, args=(self._ending, self._thread), daemon=True)
            self._thread, thread.name = thread, f"train-manager-{self._name}"
            thread.start()
            atexit.register(self.end)

    def end(self) -> None:
        """Send the remaining rows, for ten seconds at most, and warn if rows are left."""
        atexit.unregister(self.end)
        self._ending.set()
        # A sink that hangs keeps only the thread: it is a daemon, so that the process can exit.
        if self._thread is not None:
            self._thread.join(PATIENCE)
        is_left = self._thread is not None and (self._thread.is_alive() or self._has_warned)
        problems = [self._unreported, unsent(self._train_dir, self._run, self._name) if is_left else ""]
        self._unreported = ""
        if any(problems):
            warnings.warn("; ".join(filter(None, problems)), RuntimeWarning, stacklevel=2)

    def _follow(self, ending: threading.Event, before: threading.Thread | None) -> None:
        """Send until the run ends, and then once more, after the thread of the run before has ended."""
        if before is not None:
            before.join()
        is_last = False
        while not is_last:
            # Read before the sending: rows that are stored while it sends would be missed if the end was seen after it.
            is_last = ending.is_set()
            try:
                self._send_new(ending)
                if is_last:
                    self._close()
            except Exception as error:  # sinks raise the errors of their tools, of any class; the run continues
                self._warn(error)
            ending.wait(EVERY)

    def _send_new(self, ending: threading.Event) -> None:
        if self._feed is None:
            self._feed = SinkFeed(self._train_dir, self._name, self._make, this_process())
        try:
            runs = [*self._feed.state.runs, self._run]
            # After each batch of rows the thread sleeps 49 times as long as the batch took; the end of the run wakes
            # it.
            self._feed.send_new(runs, rest=lambda seconds: ending.wait(seconds * (1 / SHARE - 1)))
        except BaseException:
            self._close()  # a new feed resumes from sinks.json, since the sink may be in any state
            raise

    def _close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _warn(self, error: Exception) -> None:
        """Warn of the first error."""
        if not self._has_warned:
            self._has_warned = True
            text = f"{self._name} gets no metrics: {type(error).__name__}: {error}; the run continues"
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:  # a filter makes errors of warnings: `end` warns in the thread of the training
                self._unreported = text
