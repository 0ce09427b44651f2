from __future__ import annotations

from typing import Any

import torch

from train_manager.runs.store.batches import BatchMetrics, BatchRow, Queued
from train_manager.runs.store.rows import Begin

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


def test_the_size_is_written_again_in_a_new_part() -> None:
    found = names_of(BEGIN, row(1), BEGIN, row(2))

    assert [step for name, step in found if name == "batch_size"] == [1, 2]
