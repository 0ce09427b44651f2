"""Sends the metrics in the folder of a run to another tool, at any time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from train_manager.files.atomic import quote_path
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import LATEST, TABLES
from train_manager.runs.record.processes import is_gone, is_of_this_machine
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink_feed import SinkFeed
from train_manager.runs.sending.sink_state import read_state
from train_manager.telling.errors import InputError


def export_metrics(extension: FollowsStore, train_dir: Path, begins: str | None = None) -> int:
    """Send the rows of a folder that a sink was not sent yet, and return their number.

    Args:
        extension: says which sink, and where it is.
        train_dir: the folder.
        begins: what the run_id of the one run begins with whose rows are sent; None for all.

    Raises:
        InputError: there are no metrics, no such run or several; or a run is sending them.
        ImportError: the package of the sink is not installed.
    """
    known = runs_of(MetricReader(train_dir))
    runs = [run for run in known if begins is None or run.startswith(begins)]
    if begins is not None and len(runs) != 1:
        what = f"{quote_path(train_dir)} has {len(runs) or 'no'} runs that begin with {begins!r}"
        raise InputError(what, name="run", cure=f"its runs are {', '.join(known)}")
    extension.require_package()
    state = read_state(train_dir, extension.sink)
    # Two senders would send rows twice. One on another machine cannot be looked up: no reason to refuse.
    process = dict(state.process)
    if process and is_of_this_machine(process) and not is_gone(process):
        what = f"process {process['pid']} is sending the metrics of {quote_path(train_dir)} to {extension.sink}"
        raise InputError(what, name="train_dir", cure="wait for its run to end")
    feed = SinkFeed(train_dir, extension.sink, partial(extension.make_sink, train_dir), {})
    try:
        return feed.send_new([*state.runs, *runs], added=set(runs) - set(state.runs))
    finally:
        feed.close()


def runs_of(reader: MetricReader) -> list[str]:
    """Return the run_ids of a store, in the order in which they began."""
    # Past the last row of each table: only the segments are read.
    past_all_rows = dict.fromkeys(TABLES, LATEST)
    return list(dict.fromkeys(segment.run for segment in reader.since(past_all_rows).segments))
