"""The base class of the extensions that send metrics to other tools."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from train_manager.core.decorators import always, priority
from train_manager.core.extension import Extension
from train_manager.runs.record.metric_writer import AFTER_STORE, MetricWriter
from train_manager.runs.sending.follower import Follower
from train_manager.runs.sending.run_notes import RunNotes, notes_of, status_after
from train_manager.runs.sending.sink import Sink
from train_manager.telling.errors import InputError


class FollowsStore(Extension):
    """Sends the metrics that ``MetricStore`` stores to a sink, in a thread.

    Attributes:
        sink: what the sink is called in ``sinks.json`` and by ``train-manager export --to``; also the extra it needs.
        package: what the extra installs.
    """

    ranks = 0
    sends_away = True
    sink: ClassVar[str]
    package: ClassVar[str]
    _follower: Follower | None = None  # made by the first `pre_run`, and again for another folder or run_id
    _of: tuple[Path, str] | None = None  # the train_dir and the run_id that the follower was made for
    _notes: RunNotes | None = None  # on the present or last run

    @abstractmethod
    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return a sink for a folder; ``state`` is the last value of the former sink's ``flush``."""

    def require_package(self) -> None:
        """Import the package that the sink needs.

        Raises:
            ImportError: it is not installed.
        """
        name = type(self).__name__
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            cure = f'pip install "train-manager[{self.sink}]"'
            raise ImportError(f"{name} needs {self.package} ({error}): {cure}") from error

    def pre_run(self, train_manager: Any, train_dir: Path, writer: MetricWriter | None = None) -> None:
        name = type(self).__name__
        if writer is None:
            what = f"{name} sends what MetricStore stores, but there is no MetricStore"
            cure = f"add it: extensions=[MetricStore(), {name}()]"
            raise InputError(what, name="writer", asked_by=name, cure=cure)
        self.require_package()
        of = (train_dir.absolute(), train_manager.run_id)
        self._notes = notes_of(train_manager)
        if self._follower is None or self._of != of:
            self._follower, self._of = Follower(*of, self.sink, partial(self.make_sink, of[0])), of
        self._follower.begin()

    @always
    @priority(AFTER_STORE)
    def post_run(
        self, train_manager: Any, step_num: int, start_step: int, exc_value: BaseException | None = None
    ) -> None:
        if self._notes is not None:
            self._notes = self._notes._replace(status=status_after(exc_value, train_manager.stop_reason))
        # A run of a single step may be a call of train_on_batch: waiting for the sink would slow every call down. The
        # thread keeps following, and `atexit` ends it.
        if self._follower is not None and (step_num > start_step + 1 or exc_value is not None):
            self._follower.end()

    def known_notes(self) -> dict[str, RunNotes]:
        """Return the notes on the run of this extension, by its run_id."""
        return {} if self._of is None or self._notes is None else {self._of[1]: self._notes}

    def __getstate__(self) -> dict[str, Any]:
        # A thread cannot be pickled: the copy makes a follower of its own in its `pre_run`.
        return {**vars(self), "_follower": None, "_of": None, "_notes": None}
