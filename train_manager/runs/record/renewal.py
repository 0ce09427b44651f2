"""An entry of ``run.json`` that is written again while its run continues: often enough, and not too often.

The first changes are written at once. After that, in a loop that opens a run for each batch, at most once a second;
what is left is written as the TrainManager is collected, or as the process ends.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.record.run_file import Entry, write_entry
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level

AT_ONCE: Final = 20  # changes that are written when they are made, however soon after each other
SECONDS: Final = 1.0  # between two writes after these


@final
class Renewal:
    """Writes an entry as it changes.

    A failure to write does not end a run: it is warned of once.

    Args:
        train_dir: the folder.
        entry: what is written; its owner changes it.
        complete: adds the values that are read only for a write; its second argument is whether it is the last write.
        owner: the TrainManager; a change that waits is written when it is collected.
        clock: returns seconds.

    Attributes:
        is_open: whether the entry was written for the first time.
    """

    def __init__(
        self,
        train_dir: Path,
        entry: Entry,
        complete: Callable[[Entry, bool], None],
        owner: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.train_dir = train_dir.absolute()  # the program may call os.chdir later
        self.entry = entry
        self._complete = complete
        self._clock = clock
        self._left = AT_ONCE  # changes that may still be written at once
        self._written = -SECONDS  # when it was written last; the first change finds it long ago
        self._is_changed = False  # whether a change waits to be written
        self._has_failed = False
        self.is_open = False
        self._pid = os.getpid()
        weakref.finalize(owner, self._at_the_end)

    def open(self) -> None:
        """Write the entry for the first time.

        Raises:
            InputError: the folder has a ``run.json`` that must not be replaced.
        """
        self._complete(self.entry, False)
        self._write()
        self.is_open = True

    def changed(self) -> None:
        """Write the entry, now or a little later."""
        now = self._clock()
        if self._left <= 0 and now - self._written < SECONDS:
            self._is_changed = True
            return
        self._left -= now - self._written < SECONDS
        self.write()

    def write(self, *, is_last: bool = False) -> None:
        """Write the entry now."""
        try:
            self._complete(self.entry, is_last)
            self._write()
        except InputError as error:  # another program has replaced run.json since the run began
            self._warn(error.what)

    def _write(self) -> None:
        self._is_changed = False
        if os.getpid() != self._pid:
            return  # this is a forked child, such as a worker of a loader: the run is its parent's
        try:
            write_entry(self.train_dir, self.entry)
        except OSError as error:
            self._warn(f"{type(error).__name__}: {error}")
        self._written = self._clock()

    def _warn(self, why: str) -> None:
        if not self._has_failed:
            what = f"the record of this run is not in {self.train_dir / 'run.json'}, or not up to date"
            warnings.warn(f"{what}: {why}", RuntimeWarning, stacklevel=users_level())
        self._has_failed = True

    def _at_the_end(self) -> None:
        if self.is_open and (self._is_changed or self.entry["outcome"] == "running"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the process ends: nobody can act on a warning
                self.write(is_last=True)
