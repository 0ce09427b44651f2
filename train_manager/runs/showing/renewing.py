"""The page of a run that has not ended, written anew until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from train_manager.runs.record.metric_schema import FILE
from train_manager.runs.showing.report_page import write_page
from train_manager.runs.showing.shown_run import ShownRun, run_to_show
from train_manager.telling.errors import InputError

# Periods without new metrics after which a run without its file counts as ended: nothing else shows its end.
PATIENCE: Final = 10


def keep_writing(
    paths: Sequence[str], target: Path, seconds: float, sleep: Callable[[float], object] = time.sleep
) -> None:
    """Write the page, and again after each period, until all runs have ended, or Ctrl-C; the last one is final.

    Args:
        paths: of the runs.
        target: where the page is written.
        seconds: of a period.
        sleep: waits so long.

    Raises:
        InputError: the period is not above zero, or there is no such run.
    """
    if not 0 < seconds < float("inf"):
        what = f"a page cannot be renewed every {seconds:g} s"
        raise InputError(what, name="every", asked_by="report", cure="give some seconds: --every 10")
    unchanged, before = 0, ""
    while True:
        runs = [run_to_show(path) for path in paths]
        now = _state(runs)
        unchanged, before = (unchanged + 1 if now == before else 0), now
        unknown = any(run.has_ended is None for run in runs)
        if all(run.has_ended or (run.has_ended is None and unchanged >= PATIENCE) for run in runs):
            return write_page(runs, target)
        # A page whose metrics have not changed is not written again, unless the file of a run may have changed.
        if not (unknown and unchanged):
            write_page(runs, target, seconds)
        try:
            sleep(seconds)
        except KeyboardInterrupt:  # the last page is written without a renewal: it would load itself again for ever
            return write_page(runs, target)


def _state(runs: Sequence[ShownRun]) -> str:
    """Return sizes and times of the files of metrics and their logs, which change if a run writes metrics."""
    files = [run.train_dir / f"{FILE}{end}" for run in runs for end in ("", "-wal")]
    found = [file.stat() for file in files if file.exists()]
    return repr([(one.st_size, one.st_mtime_ns) for one in found])
