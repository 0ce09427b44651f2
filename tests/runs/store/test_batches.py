from __future__ import annotations

from typing import Any

import torch

from train_manager.runs.store.batches import BatchMetrics, BatchRow, EpochAndPhase, Queued, Rates, Written
from train_manager.runs.store.rows import Begin
from train_manager.runs.store.schema import Series

BEGIN = Begin(0.0, "run", 0, {})


def row(step: int, loss: Any = 0.5, examples: Any = 16, source: str = "train", parts: Any = None) -> BatchRow:
    return loss, step, examples, 100.0 + step, source, parts


def made_of(*queued: Queued) -> list[tuple[Any, ...]]:
    """Return name, datasource, phase, step, epoch and value of each scalar that is made."""
    metrics = BatchMetrics()
    items = [item for one in queued for item in metrics.of(one) if isinstance(item, tuple)]
    return [(of.name, of.datasource, of.phase, step, epoch, value) for of, step, _, epoch, _, value in items]


def names_of(*queued: Queued) -> list[tuple[str, int]]:
    return [(name, step) for name, _, _, step, _, _ in made_of(*queued)]


def test_a_row_becomes_its_loss_and_its_size() -> None:
    assert made_of(row(1)) == [("loss", "train", "", 1, 0, 0.5), ("batch_size", "", "", 1, 0, 16)]


def test_a_metric_has_the_time_of_its_row() -> None:
    metrics = BatchMetrics()

    assert {item[4] for item in metrics.of(row(7)) if isinstance(item, tuple)} == {107.0}


def test_a_size_is_written_again_as_it_changes() -> None:
    found = names_of(row(1), row(2), row(3, examples=8), row(4, examples=8))

    assert [step for name, step in found if name == "batch_size"] == [1, 3]


def test_a_size_that_is_a_tensor_is_written_each_time_and_not_read() -> None:
    size = torch.tensor(8)

    assert [
        found[-1] for found in made_of(row(1, examples=size), row(2, examples=size)) if found[0] == "batch_size"
    ] == [
        size,
        size,
    ]


def test_a_row_without_a_loss_has_its_size_alone() -> None:
    assert names_of(row(1, loss=None)) == [("batch_size", 1)]


def test_the_parts_of_a_loss_are_metrics_of_the_same_set() -> None:
    assert ("losses/kl", "b", "", 1, 0, 0.25) in made_of(row(1, source="b", parts={"kl": 0.25}))


def test_rates_are_of_the_row_after_them_alone() -> None:
    found = names_of(Rates({"lr": 0.5}), Rates({"lr": 0.25}), row(1), row(2))

    assert [step for name, step in found if name == "lr"] == [1]


def test_rows_are_of_the_epoch_and_the_phase_that_were_told_last() -> None:
    found = made_of(row(1), EpochAndPhase(2, "head"), row(2), EpochAndPhase(3, ""), row(3))

    assert [(step, epoch, phase) for name, _, phase, step, epoch, _ in found if name == "loss"] == [
        (1, 0, ""),
        (2, 2, "head"),
        (3, 3, ""),
    ]


def test_the_size_is_written_again_in_a_new_part() -> None:
    found = names_of(BEGIN, row(1), BEGIN, row(2))

    assert [step for name, step in found if name == "batch_size"] == [1, 2]


def test_a_metric_of_a_hook_stays_as_it_is() -> None:
    metrics, metric = BatchMetrics(), (Series("norm"), 1, None, 1, 100.0, 0.5)

    assert [*metrics.of(Written(metric)), *metrics.of(BEGIN)] == [metric, BEGIN]
