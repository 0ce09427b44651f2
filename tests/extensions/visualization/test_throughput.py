"""The speed of a training, measured with a clock that a test sets."""

from __future__ import annotations

from pathlib import Path

import torch

from train_manager import Extension
from train_manager.extensions import MetricStore, Throughput
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


class Clock:
    """A clock that continues half a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def even() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.rand(8, 2), torch.zeros(8).long()) for _ in range(6)]


def test_examples_are_counted_by_second() -> None:
    throughput = Throughput(clock=Clock())
    tiny_manager(throughput, train_data=even()).train()

    assert throughput.curves["examples_per_second"] == ([3, 5], [16.0, 16.0])


def test_the_time_of_an_evaluation_does_not_count() -> None:
    clock = Clock()

    class Slow(Extension):
        def pre_eval(self) -> None:
            clock.now += 1000

    throughput = Throughput(clock=clock)
    tiny_manager(throughput, Slow(), train_data=even(), epochs=3).train()

    assert set(throughput.curves["examples_per_second"][1]) == {16.0}


def test_the_store_gets_the_metrics(tmp_path: Path) -> None:
    tiny_manager(Throughput(clock=Clock()), MetricStore(), train_data=even(), train_dir=tmp_path).train()

    (metrics,) = MetricReader(tmp_path).scalars("examples_per_second").values()
    assert (list(metrics.steps), list(metrics.values)) == ([3, 5], [16.0, 16.0])


def test_the_share_of_waiting_for_data_is_measured() -> None:
    throughput = Throughput(seconds=1e-6)
    tiny_manager(throughput, train_data=even()).train()

    assert all(0 <= share <= 1 for share in throughput.curves["waiting_share"][1])


def test_batches_of_ones_own_have_no_share_of_waiting() -> None:
    throughput = Throughput(clock=Clock())
    tm = tiny_manager(throughput)
    with tm.run():
        for batch in even():
            tm.train_on_batch(batch)

    assert [*throughput.curves] == ["examples_per_second"]
