from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from train_manager import Extension
from train_manager.extensions import Checkpoints, MetricStore, RunRecord
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.repeating.comparing_metrics import compare_metrics
from train_manager.runs.repeating.lost_metrics import lost_steps, without_steps
from train_manager.runs.repeating.recorded_metrics import metrics_of_runs
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager


class WritesWithin(Extension):
    """Write a metric of its own in each step."""

    def post_train_backward(self, writer: MetricWriter) -> None:
        writer.scalar("within", 1.0)


def train(train_dir: Path, epochs: int) -> None:
    extensions = RunRecord(), MetricStore(), Checkpoints(resume=True), WritesWithin()
    tiny_manager(*extensions, epochs=epochs, train_dir=train_dir).train()


def test_steps_that_a_killed_process_did_not_record_are_left_out_of_both(tmp_path: Path) -> None:
    train(tmp_path / "killed", 1)
    with closing(sqlite3.connect(tmp_path / "killed" / "metrics.sqlite")) as connection, connection:
        connection.execute(
            "DELETE FROM scalars WHERE step > 1 AND series IN "
            "(SELECT id FROM series WHERE stage IN ('train_step_batch', ''))"
        )
    train(tmp_path / "killed", 2)
    train(tmp_path / "straight", 2)
    killed, straight = read_runs(tmp_path / "killed"), read_runs(tmp_path / "straight")
    one, other = metrics_of_runs(tmp_path / "killed", killed), metrics_of_runs(tmp_path / "straight", straight)

    lost = lost_steps(tmp_path / "killed", killed)

    assert lost == [(2, 3)]
    assert not compare_metrics(one, other).identical
    assert compare_metrics(without_steps(one, lost), without_steps(other, lost)).identical
    assert lost_steps(tmp_path / "straight", straight) == []


def test_all_steps_of_a_run_without_rows_are_left_out(tmp_path: Path) -> None:
    train(tmp_path, 1)
    (tmp_path / "metrics.sqlite").unlink()  # as if the process was killed before its first row was written
    train(tmp_path, 2)

    assert lost_steps(tmp_path, read_runs(tmp_path)) == [(1, 3)]


def test_a_run_that_measures_no_losses_has_lost_none(tmp_path: Path) -> None:
    train(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / "metrics.sqlite")) as connection, connection:
        connection.execute("DELETE FROM scalars WHERE series IN (SELECT id FROM series WHERE name = 'loss')")
    train(tmp_path, 2)

    assert lost_steps(tmp_path, read_runs(tmp_path)) == []
