"""What the tests of `MetricStore` read and write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from train_manager import Extension, TrainManager
from train_manager.extensions import MetricStore
from train_manager.runs.store.thread import StoreThread
from train_manager.tools import read_run


def stored(folder: Path, name: str, stage: str | None = "train_step_batch", **options: Any) -> dict[int, float]:
    """Return the only series of this name, as values by steps."""
    [found] = read_run(folder).metrics.scalars(name, stage, **options).values()
    return dict(zip(found.steps, found.values, strict=True))


def thread_of(store: MetricStore) -> StoreThread:
    assert store._stored is not None
    return store._stored.thread


def history_is_that_of(tm: TrainManager, folder: Path) -> bool:
    return read_run(folder).history.state_dict() == tm.history.state_dict()


class Losses(Extension):
    """Keep the loss of each step."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}

    def post_train_step_batch(self, step_num: int, loss: torch.Tensor) -> None:
        self.values[step_num] = loss.item()


class Writes(Extension):
    def pre_run(self, writer: Any) -> None:
        writer.text("note", "begun")

    def post_train_step_batch(self, writer: Any, step_num: int) -> None:
        writer.scalar("twice", 2 * step_num)

    def post_eval(self, writer: Any) -> None:
        writer.scalar("of_eval", torch.tensor(0.5))
