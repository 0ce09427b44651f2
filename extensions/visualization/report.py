"""A page about the run, written as the run ends: metrics, layers, results and record in one file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.source_locations import users_level


@recorded
class Report(Extension):
    """Write a page about the run that a browser shows without a server, as ``train-manager report`` does.

    >>> import pathlib, tempfile
    >>> from train_manager.extensions import MetricStore, RunRecord
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), RunRecord(), Report(), epochs=2, train_dir=folder).train()
    >>> pathlib.Path(folder, "report.html").read_text()[:15]
    '<!DOCTYPE html>'

    It has what ``MetricStore`` and ``RunRecord`` have written. While the run continues, ``train-manager report
    TRAIN_DIR --every 10`` writes it from another process. A page that cannot be written is a warning.

    *Runs at:* around ``run``.

    *Asks for:* ``train_dir`` and ``step_num``.

    *Leaves behind:* ``report.html`` in ``train_dir``, written once as the run of a training ends, also after an error
    or Ctrl-C.
    """

    ranks = 0

    def __init__(self) -> None:  # without it the tables of arguments would show *args and **kwargs
        super().__init__()

    @priority(-95)  # around RunRecord (-90): when this hook ends, its file has the outcome, and the store all metrics
    def around_run(self, train_dir: Path, step_num: int, train_manager: object) -> Iterator[None]:
        try:
            yield
        finally:
            if getattr(train_manager, "step_num", step_num) > step_num:  # nothing was trained: an evaluation
                write(train_dir)


def write(train_dir: Path) -> None:
    """Write the page; if that fails, warn."""
    # Imported here, because only the end of a training needs it.
    from train_manager.runs.showing.page import write_report

    try:
        write_report(train_dir)
    except (TrainManagerError, OSError) as error:
        warnings.warn(f"the report was not written: {error}", RuntimeWarning, stacklevel=users_level())
