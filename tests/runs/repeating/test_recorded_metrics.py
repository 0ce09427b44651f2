from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import TrainManager
from train_manager.extensions import Checkpoints, MetricStore, RunRecord
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.run_paths import chain_of
from train_manager.runs.repeating.metrics import compare_metrics
from train_manager.runs.repeating.recorded_metrics import metrics_of_runs
from train_manager.testing import tiny_manager

LOSS = "loss"


def manager(train_dir: Path, *, epochs: int = 2) -> TrainManager:
    return tiny_manager(RunRecord(), MetricStore(), Checkpoints(resume=True), epochs=epochs, train_dir=train_dir)


def steps_of(found: object, stage: str) -> list[list[int]]:
    assert isinstance(found, dict)
    return [steps for name, (steps, _) in found.items() if name.stage == stage and name.name == LOSS]


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of one epoch, one more that resumed from it, and an evaluation."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    manager(folder, epochs=1).train()
    manager(folder, epochs=2).train()
    manager(folder, epochs=2).eval()
    return folder


def test_a_run_that_resumed_has_the_metrics_of_the_one_before(train_dir: Path) -> None:
    entries = read_runs(train_dir)

    found = metrics_of_runs(train_dir, chain_of(entries[1], entries))

    assert steps_of(found, "train_step_batch") == [[1, 2, 3, 4, 5, 6]]
    assert steps_of(found, "train_step_epoch") == [[3, 6]]


def test_they_are_those_of_a_training_in_one_go(train_dir: Path, tmp_path: Path) -> None:
    manager(tmp_path / "straight").train()
    entries, straight = read_runs(train_dir), read_runs(tmp_path / "straight")

    found = compare_metrics(
        metrics_of_runs(train_dir, chain_of(entries[1], entries)), metrics_of_runs(tmp_path / "straight", straight)
    )

    assert found.identical, found
    assert found.losses == 6


def test_steps_after_the_checkpoint_are_those_of_the_run_that_resumed(tmp_path: Path) -> None:
    manager(tmp_path, epochs=1).train()
    manager(tmp_path, epochs=3).train()
    entries = read_runs(tmp_path)
    entries[1]["goes_on_from"]["step"] = 2  # as if the first one had continued after its checkpoint

    found = metrics_of_runs(tmp_path, chain_of(entries[1], entries))

    assert steps_of(found, "train_step_batch") == [[1, 2, 4, 5, 6, 7, 8, 9]]


def test_a_series_is_named_as_people_name_it(train_dir: Path) -> None:
    found = metrics_of_runs(train_dir, read_runs(train_dir)[:1])

    assert Series("loss", "eval", "valid") in found
