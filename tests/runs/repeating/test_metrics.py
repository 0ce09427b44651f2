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
    is_time,
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


def test_the_same_metrics_are_identical_and_counted() -> None:
    one = run([0.5, 0.25, 0.1], valid=([0, 3], [1.0, 0.5]))

    found = compare_metrics(one, run([0.5, 0.25, 0.1], valid=([0, 3], [1.0, 0.5])))

    assert found.identical
    assert (found.losses, found.metrics, found.until) == (3, 2, 3)


def test_the_first_step_that_differs_is_found_with_both_values() -> None:
    found = compare_metrics(run([0.5, 0.25, 0.1, 0.1]), run([0.5, 0.25, 0.125, 0.2]))

    assert not found.identical
    assert found.first == MetricDifference(3, LOSS, 0.1, 0.125)
    assert found.differing == {LOSS: 2}
    assert found.largest == 0.1


def test_the_last_bit_counts() -> None:
    found = compare_metrics(run([1.0]), run([math.nextafter(1.0, 2.0)]))

    assert found.first == MetricDifference(1, LOSS, 1.0, math.nextafter(1.0, 2.0))


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


def test_a_shorter_run_is_compared_up_to_its_end() -> None:
    found = compare_metrics(run([0.5, 0.25, 0.1]), run([0.5, 0.25]))

    assert found.identical
    assert (found.until, found.ends, found.losses) == (2, (3, 2), 2)


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


def test_steps_of_the_other_run_only_are_told_and_no_difference() -> None:
    one, other = {LOSS: ([1, 4, 5], [0.5, 0.2, 0.1])}, run([0.5, 0.4, 0.3, 0.2, 0.1])

    found = compare_metrics(one, other)

    assert found.identical
    assert (found.losses, found.only_in) == (3, ({}, {LOSS: Alone(2, 2, 3)}))


def test_values_at_one_step_are_compared_in_their_order() -> None:
    one, other = run([0.5, 0.25], valid=([1, 1, 2], [3, 2, 1])), run([0.5, 0.25], valid=([1, 1, 2], [3, 4, 1]))

    assert compare_metrics(one, other).first == MetricDifference(1, VALID, 2.0, 4.0)


def test_a_series_of_the_first_run_only_is_a_difference() -> None:
    found = compare_metrics(run([0.5], grad_norm=([1], [2.0])), run([0.5]))

    assert not found.identical
    assert found.only_in == ({Series("grad_norm"): Alone(1, 1, 1)}, {})


def test_a_series_of_the_other_run_only_is_told_and_no_difference() -> None:
    found = compare_metrics(run([0.5]), run([0.5], grad_norm=([1], [2.0])))

    assert found.identical
    assert found.only_in == ({}, {Series("grad_norm"): Alone(1, 1, 1)})


def test_times_and_speeds_are_not_compared() -> None:
    one, other = run([0.5], seconds=([1], [2.0])), run([0.5], seconds=([1], [3.0]))

    found = compare_metrics(one, other)

    assert found.identical
    assert found.left_out == (Series("seconds"),)
    assert is_time(Series("samples_per_second"))
    assert not is_time(Series("loss"))


def test_runs_without_a_batch_are_compared_by_their_evaluations() -> None:
    found = compare_metrics({VALID: ([0], [1.0])}, {VALID: ([0], [2.0])})

    assert found.first == MetricDifference(0, VALID, 1.0, 2.0)


def test_rows_that_were_written_out_of_order_are_compared_by_their_step() -> None:
    one, other = {LOSS: ([2, 1], [0.25, 0.5])}, {LOSS: ([1, 2], [0.5, 0.25])}

    assert compare_metrics(one, other).identical


def test_a_million_losses_are_compared_in_a_moment() -> None:
    losses = [1 / step for step in range(1, 1_000_001)]

    found = compare_metrics(run(losses), run([*losses[:-1], 0.0]))

    assert found.first == MetricDifference(1_000_000, LOSS, 1e-6, 0.0)


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


def test_a_run_that_resumed_has_the_metrics_of_the_one_before(runs: tuple[Path, str, str]) -> None:
    train_dir, first, second = runs

    loss = Series("loss", "train_step_batch", "train")
    assert metrics_of_run(train_dir, first)[loss][0] == [1, 2, 3]
    assert metrics_of_run(train_dir, second)[loss][0] == [1, 2, 3, 4, 5, 6]
    assert metrics_of_run(train_dir, second)[EPOCH][0] == [3, 6]


def test_they_are_those_of_a_training_in_one_go(runs: tuple[Path, str, str], tmp_path: Path) -> None:
    straight = manager(tmp_path / "straight")
    straight.train()
    train_dir, _, second = runs

    found = compare_metrics(metrics_of_run(train_dir, second), metrics_of_run(tmp_path / "straight", straight.run_id))

    assert found.identical, found
    assert found.losses == 6
    assert found.only_in == ({}, {})


def test_a_series_is_named_as_people_name_it(runs: tuple[Path, str, str]) -> None:
    train_dir, first, _ = runs

    assert VALID in metrics_of_run(train_dir, first)
