"""What the extensions have in common that send figures to other tools."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from train_manager.core.decorators import always, priority
from train_manager.core.extension import Extension
from train_manager.runs.record.figure_writer import AFTER_STORE, FigureWriter
from train_manager.runs.sending.follower import Follower
from train_manager.runs.sending.sink import Sink
from train_manager.telling.errors import InputError


class FollowsStore(Extension):
    """Sends what ``MetricStore`` stores to a sink, in a thread.

    Attributes:
        sink: what the sink is called in ``sinks.json`` and by ``train-manager export --to``; also the extra it needs.
        package: what the extra installs.
    """

    sends_away = True
    sink: ClassVar[str]
    package: ClassVar[str]
    _follower: Follower | None = None  # from the first run on
    _of: tuple[Path, str] | None = None  # the folder and the run that it follows

    @abstractmethod
    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return a sink for a folder; ``state`` is what ``flush`` of the one before has returned."""

    def require_package(self) -> None:
        """Import what the sink needs.

        Raises:
            ImportError: it is not installed.
        """
        name = type(self).__name__
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            cure = f'pip install "train-manager[{self.sink}]"'
            raise ImportError(f"{name} needs {self.package} ({error}): {cure}") from error

    def pre_run(self, train_manager: Any, train_dir: Path, writer: FigureWriter | None = None) -> None:
        name = type(self).__name__
        if writer is None:
            what = f"{name} sends what MetricStore stores, but there is no MetricStore"
            cure = f"add it: extensions=[MetricStore(), {name}()]"
            raise InputError(what, name="writer", asked_by=name, cure=cure)
        self.require_package()
        of = (train_dir.absolute(), train_manager.run_id)
        if self._follower is None or self._of != of:
            self._follower, self._of = Follower(*of, self.sink, partial(self.make_sink, of[0])), of
        self._follower.begin()

    @always
    @priority(AFTER_STORE)
    def post_run(self, step_num: int, start_step: int) -> None:
        if self._follower is not None and step_num > start_step + 1:  # else train_on_batch: each call may be a run
            self._follower.end()

    def __getstate__(self) -> dict[str, Any]:  # a copy follows by itself
        return {**vars(self), "_follower": None, "_of": None}
