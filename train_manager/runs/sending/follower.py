"""A thread that hands on to a sink what ``metrics.sqlite`` gets while a training runs.

A sink so has no hook in a step, and cannot stop a training. What could not be sent is sent later, from the file.
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

EVERY: Final = 1.0  # seconds
PATIENCE: Final = 10.0  # seconds that the end of a run waits for a sink
SHARE: Final = 0.02  # of the interpreter, while the training runs


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
        self._feed: SinkFeed | None = None
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._is_told, self._untold = False, ""

    def begin(self) -> None:
        """Follow, until ``end``."""
        if self._thread is None or self._ending.is_set():
            self._ending = threading.Event()
            thread = threading.Thread(target=self._follow, args=(self._ending, self._thread), daemon=True)
            self._thread, thread.name = thread, f"train-manager-{self._name}"
            thread.start()
            atexit.register(self.end)

    def end(self) -> None:
        """Send what is left, for ten seconds at most, and tell if that was not all; what hangs hangs in the thread."""
        atexit.unregister(self.end)
        self._ending.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        is_left = self._thread is not None and (self._thread.is_alive() or self._is_told)
        problems = [self._untold, unsent(self._train_dir, self._run, self._name) if is_left else ""]
        self._untold = ""
        if any(problems):
            warnings.warn("; ".join(filter(None, problems)), RuntimeWarning, stacklevel=2)

    def _follow(self, ending: threading.Event, before: threading.Thread | None) -> None:
        """Send until the run ends, and then once more; first a thread of the run before, that hung, must be done."""
        if before is not None:
            before.join()
        is_last = False
        while not is_last:
            is_last = ending.is_set()
            try:
                self._send_new(ending)
                if is_last:
                    self._close()
            except Exception as error:  # of any tool: whatever it is, the training goes on
                self._tell(error)
            ending.wait(EVERY)

    def _send_new(self, ending: threading.Event) -> None:
        if self._feed is None:
            self._feed = SinkFeed(self._train_dir, self._name, self._make, this_process())
        try:
            runs = [*self._feed.state.runs, self._run]
            self._feed.send_new(runs, rest=lambda seconds: ending.wait(seconds * (1 / SHARE - 1)))
        except BaseException:
            self._close()  # the next one goes on from what was noted
            raise

    def _close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _tell(self, error: Exception) -> None:
        """Tell once what has failed; where warnings are errors, at the end."""
        if not self._is_told:
            self._is_told = True
            text = f"{self._name} gets no figures: {type(error).__name__}: {error}; the training goes on"
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:
                self._untold = text
