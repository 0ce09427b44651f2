"""What a sink lacks of the metrics of a training, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from train_manager.files.atomic import quote_path
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.sending.sink_state import read_state
from train_manager.telling.errors import TrainManagerError

MOST_COUNTED: Final = 100_000  # rows of a table: the end of a run does not wait for a longer count


def unsent(train_dir: Path, run: str, name: str) -> str:
    """Return how many rows a sink was not sent, and the command that sends them; nothing if it was sent all.

    Args:
        train_dir: the folder with ``metrics.sqlite``.
        run: the run_id; rows of runs that the sink was sent before count too.
        name: of the sink.
    """
    try:
        state = read_state(train_dir, name)
        rows = MetricReader(train_dir).since(state.ids, most=MOST_COUNTED).rows.values()
    except TrainManagerError as error:  # another program has damaged sinks.json or metrics.sqlite
        return f"the metrics that {name} lacks cannot be counted: {error}"
    count = sum(row.run in (*state.runs, run) for of_table in rows for row in of_table)
    folder = quote_path(train_dir)
    return f"{name} lacks {count:,} metrics of {folder}: train-manager export {folder} --to {name}" if count else ""
