from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest
import torch

from train_manager.extensions import MetricStore, RunRecord
from train_manager.files import train_dirs
from train_manager.runs.repeating.metrics import MetricComparison, MetricValues, compare_metrics, metrics_of_run
from train_manager.runs.repeating.repeated_run import RepeatedRun, repeated_run
from train_manager.testing import tiny_manager


def train(train_dir: Path, rate: float = 0.5, epochs: int = 1) -> str:
    """Train, and return the run_id."""
    sgd = partial(torch.optim.SGD, lr=rate)
    tm = tiny_manager(RunRecord(), MetricStore(), optimizer=sgd, epochs=epochs, train_dir=train_dir)
    tm.train()
    return tm.run_id


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MetricValues:
    """The metrics of a run; the TrainManagers after it are counted anew."""
    run = train(tmp_path / "recorded")
    monkeypatch.setattr(train_dirs, "_numbers", itertools.count(1))
    return metrics_of_run(tmp_path / "recorded", run)


def found(train_dir: Path, number: int, recorded: MetricValues) -> RepeatedRun | None:
    def compare(metrics: MetricValues) -> MetricComparison:
        return compare_metrics(recorded, metrics)

    return repeated_run(train_dir, number, compare)


def test_the_run_of_the_same_number_is_taken(tmp_path: Path, recorded: MetricValues) -> None:
    same, other = train(tmp_path / "again"), train(tmp_path / "again", rate=0.25)

    runs = [found(tmp_path / "again", number, recorded) for number in (1, 2)]

    assert [(run.entry["id"], run.metrics.identical) for run in runs if run] == [(same, True), (other, False)]


def test_if_no_run_has_the_number_the_closest_is_taken(tmp_path: Path, recorded: MetricValues) -> None:
    _, same, _ = (train(tmp_path / "again", rate) for rate in (0.25, 0.5, 0.125))

    run = found(tmp_path / "again", 7, recorded)

    assert run is not None
    assert (run.entry["id"], run.metrics.identical) == (same, True)


def test_without_the_folder_those_beside_it_are_searched(tmp_path: Path, recorded: MetricValues) -> None:
    for name, rate in (("again-1", 0.25), ("again-2", 0.5), ("elsewhere", 0.5)):
        train(tmp_path / name, rate)

    run = found(tmp_path / "again", 7, recorded)

    assert run is not None
    assert run.train_dir == tmp_path / "again-2"


def test_a_program_that_has_not_trained_has_no_run(tmp_path: Path, recorded: MetricValues) -> None:
    tiny_manager(RunRecord(), MetricStore(), train_dir=tmp_path / "again").eval()

    assert found(tmp_path / "again", 1, recorded) is None
    assert found(tmp_path / "nowhere", 1, recorded) is None
