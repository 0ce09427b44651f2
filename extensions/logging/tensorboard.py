"""Every metric of the training in the event files of TensorBoard, written from ``metrics.sqlite``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink import Sink


@recorded
class TensorBoard(FollowsStore):
    """Write all metrics of ``MetricStore`` for TensorBoard, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), TensorBoard()]

    Then ``tensorboard --logdir runs`` shows the runs below ``runs``. Metrics are written within seconds, and as the run
    ends for ten seconds at most; ``train-manager export RUN --to tensorboard``, or a resume, writes the rest.
    After a resume TensorBoard forgets the later steps of the run before (``purge_step``). The extension needs the
    package tensorboard: ``pip install "train-manager[tensorboard]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* event files in ``folder``; ``sinks.json`` in ``train_dir``.

    Args:
        folder: where to write; None is ``tensorboard`` in the ``train_dir``.

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: tensorboard is not installed.
    """

    sink: ClassVar[str] = "tensorboard"  # its name in sinks.json and in `train-manager export --to`
    package: ClassVar[str] = "tensorboard"  # the package that must be installed as a run begins

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder).absolute()

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return the object that writes the event files."""
        # Imported here, because the module imports tensorboard, which is optional.
        from train_manager.runs.sending.event_file import EventFile

        # `train-manager export` makes this extension without arguments; `state`, which the sink of the training has
        # saved in sinks.json, has the arguments of the training.
        folder = self.folder or state.get("folder", "tensorboard")
        return EventFile(train_dir, str(folder), state)
