from __future__ import annotations

import math
from pathlib import Path

import pytest

from train_manager import TrainManager
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.repeating.metrics import (
    Alone,
    MetricDifference,
    MetricValues,
    compare_metrics,
    metrics_of_run,
)
from train_manager.runs.store.schema import Series
from train_manager.testing import tiny_manager

LOSS = Series("loss", "train_step_batch")
VALID = Series("loss", "eval", "valid")
EPOCH = Series("loss", "train_step_epoch")


def run(losses: list[float], **others: tuple[list[int], list[float]]) -> MetricValues:
    names = {"valid": VALID, "epoch": EPOCH}
    found = {names.get(name, Series(name)): rows for name, rows in others.items()}
    return {LOSS: (list(range(1, len(losses) + 1)), losses), **found}


def test_the_first_step_that_differs_is_found_with_both_values() -> None:
    found = compare_metrics(run([0.5, 0.25, 0.1, 0.1]), run([0.5, 0.25, 0.125, 0.2]))

    assert not found.identical
    assert found.first == MetricDifference(3, LOSS, 0.1, 0.125)
    assert found.differing == {LOSS: 2}
    assert found.largest == 0.1


def test_zeros_of_two_signs_differ() -> None:
    assert not compare_metrics(run([0.0]), run([-0.0])).identical


def test_nan_is_equal_to_nan_and_to_no_number() -> None:
    assert compare_metrics(run([math.nan]), run([math.nan])).identical
    assert not compare_metrics(run([math.nan]), run([1.0])).identical
    assert compare_metrics(run([math.nan]), run([1.0])).largest == 0.0


def test_the_loss_of_a_batch_is_told_before_other_metrics_of_its_step() -> None:
    one = run([0.5], valid=([1], [1.0]), a=([1], [1.0]))
    other = run([0.25], valid=([1], [2.0]), a=([1], [3.0]))

    assert compare_metrics(one, other).first == MetricDifference(1, LOSS, 0.5, 0.25)


def test_an_evaluation_before_the_first_step_is_told_first() -> None:
    found = compare_metrics(run([0.5], valid=([0, 1], [1.0, 2.0])), run([0.25], valid=([0, 1], [3.0, 2.0])))

    assert found.first == MetricDifference(0, VALID, 1.0, 3.0)


def test_an_epoch_that_a_cut_run_left_in_the_middle_is_not_compared() -> None:
    one = run([0.5, 0.25, 0.1, 0.1], epoch=([2, 4], [0.375, 0.1]))
    cut = run([0.5, 0.25, 0.1], epoch=([2, 3], [0.375, 0.1]))

    found = compare_metrics(one, cut)

    assert found.identical
    assert found.metrics == 1


def test_of_two_evaluations_at_the_end_of_a_cut_run_the_first_is_compared() -> None:
    one = run([0.5, 0.25], valid=([1, 1, 2], [1.0, 2.0, 3.0]))

    assert compare_metrics(one, run([0.5], valid=([1], [1.0]))).identical
    assert not compare_metrics(one, run([0.5], valid=([1], [2.0]))).identical


def test_a_step_may_bound_the_comparison() -> None:
    found = compare_metrics(run([0.5, 0.25, 0.1]), run([0.5, 0.25, 9.0]), until=2)

    assert found.identical
    assert found.until == 2


def test_an_evaluation_that_is_missing_in_the_middle_differs() -> None:
    one, other = run([0.5, 0.25], valid=([0, 1, 2], [3, 2, 1])), run([0.5, 0.25], valid=([0, 2], [3, 1]))

    found = compare_metrics(one, other)

    assert not found.identical
    assert (found.first, found.only_in) == (None, ({VALID: Alone(1, 1, 1)}, {}))


def test_runs_without_a_batch_are_compared_by_their_evaluations() -> None:
    found = compare_metrics({VALID: ([0], [1.0])}, {VALID: ([0], [2.0])})

    assert found.first == MetricDifference(0, VALID, 1.0, 2.0)


def test_rows_that_were_written_out_of_order_are_compared_by_their_step() -> None:
    one, other = {LOSS: ([2, 1], [0.25, 0.5])}, {LOSS: ([1, 2], [0.5, 0.25])}

    assert compare_metrics(one, other).identical


# ---- of runs in a folder ---------------------------------------------------------------------------------------------


def manager(train_dir: Path, *, epochs: int = 2) -> TrainManager:
    return tiny_manager(MetricStore(), Checkpoints(resume=True), epochs=epochs, train_dir=train_dir)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A training of one epoch, one more that resumed from it, and an evaluation; and the ids of the first two."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    trained = [manager(folder, epochs=epochs) for epochs in (1, 2)]
    for one in trained:
        one.train()
    manager(folder).eval()
    return folder, trained[0].run_id, trained[1].run_id


def test_they_are_those_of_a_training_in_one_go(runs: tuple[Path, str, str], tmp_path: Path) -> None:
    straight = manager(tmp_path / "straight")
    straight.train()
    train_dir, _, second = runs

    found = compare_metrics(metrics_of_run(train_dir, second), metrics_of_run(tmp_path / "straight", straight.run_id))

    assert found.identical, found
    assert found.losses == 6
    assert found.only_in == ({}, {})
