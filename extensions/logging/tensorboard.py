"""Every figure of the training in the event files of TensorBoard, written from ``metrics.sqlite``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink import Sink


@recorded
class TensorBoard(FollowsStore):
    """Write all that ``MetricStore`` stores for TensorBoard, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), TensorBoard()]

    Then ``tensorboard --logdir runs`` shows the runs below ``runs``. It is written within seconds, and as the run ends
    for ten seconds at most; what was left is written by ``train-manager export RUN --to tensorboard``, or by a resume.
    After a resume TensorBoard forgets the later steps of before (``purge_step``). It needs the package tensorboard:
    ``pip install "train-manager[tensorboard]"``.

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

    sink: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder).absolute()

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return what writes the event files."""
        from train_manager.runs.sending.event_file import EventFile

        folder = self.folder or state.get("folder", "tensorboard")  # as the training was told, if it is exported
        return EventFile(train_dir, str(folder), state)
