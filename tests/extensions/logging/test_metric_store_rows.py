"""The rows of batches, which `MetricStore` reads when it likes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.extensions.logging.stored import Writes, stored, thread_of
from tests.support.eventually import eventually
from tests.support.fork_server import ForkServer
from train_manager import Extension, Interleaved, TrainManager, add_loss, every, scheduled
from train_manager.extensions import Accumulate, LRSchedule, MetricStore, WarmUp
from train_manager.testing import tiny_manager
from train_manager.tools import read_run

# ---- the rows of batches ---------------------------------------------------------------------------------------------


def all_rows(folder: Path) -> dict[tuple[str, ...], list[tuple[float, ...]]]:
    """Return all scalars, by what their series are called."""
    found = read_run(folder).metrics.scalars()
    return {tuple(series): list(zip(of.steps, of.values, strict=True)) for series, of in found.items()}


class ByHook(MetricStore):
    """Store the same with a hook of each batch, as in a loop without rows."""

    def post_train_step_batch(
        self, step_num: int, losses: Any, datasource_name: str, true_batch_size: int, loss: Any = None
    ) -> None:
        super().post_train_step_batch(step_num, losses, datasource_name, true_batch_size, loss)


def varied(store: MetricStore, folder: Path) -> None:
    """Train with a phase, two sets, parts of the loss, rates that change, a batch on its own, and an evaluation."""
    torch.manual_seed(0)
    batches = [(torch.rand(size, 2), torch.zeros(size, dtype=torch.long)) for size in (4, 4, 2)]
    data = Interleaved({"a": batches, "b": batches[:2]})
    schedule = LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5), per="step")
    model = nn.Sequential(nn.Flatten(), AddsLoss(2, 2))
    tm = tiny_manager(store, schedule, WarmUp(steps=3), Writes(), model=model, train_data=data, train_dir=folder)
    with tm.run():
        tm.train_epochs(2)
        with tm.phase("head", epochs=1, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.125)):
            tm.train()
        tm.train_on_batch(batches[0])
        tm.train_steps(2)


class AddsLoss(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        add_loss(inputs.new_tensor(0.25), "sparsity")
        return super().forward(inputs)


def test_rows_and_a_hook_of_each_batch_store_the_same(tmp_path: Path) -> None:
    varied(MetricStore(), tmp_path / "rows")
    varied(ByHook(), tmp_path / "hook")

    assert all_rows(tmp_path / "rows") == all_rows(tmp_path / "hook")


def test_a_hook_with_a_schedule_stores_the_batches_that_it_picks(tmp_path: Path) -> None:
    store = scheduled(MetricStore(), "post_train_step_batch", every(2))
    tiny_manager(store, epochs=2, train_dir=tmp_path).train()

    assert list(stored(tmp_path, "loss")) == [2, 4, 6]


def test_the_sets_of_interleaved_data_are_series_of_their_own(tmp_path: Path) -> None:
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))] * 2
    tiny_manager(MetricStore(), train_data=Interleaved({"a": batches, "b": batches}), train_dir=tmp_path).train()

    found = read_run(tmp_path).metrics.scalars("loss", "train_step_batch")
    assert {series.datasource: len(of.steps) for series, of in found.items()} == {"a": 2, "b": 2}


def test_the_rates_of_a_warm_up_are_those_that_the_optimizer_has_stepped_with(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), WarmUp(steps=2, start=0.5), epochs=2, train_dir=tmp_path).train()

    assert stored(tmp_path, "lr") == {1: 0.25, 2: 0.375, 3: 0.5}


def test_before_the_first_step_of_the_optimizer_no_rate_is_stored(tmp_path: Path) -> None:
    """With a warm-up, the optimizer never steps with the rate that stands in it until then."""
    extensions = MetricStore(), WarmUp(steps=2, start=0.5), Accumulate(2)
    tiny_manager(*extensions, epochs=2, train_dir=tmp_path).train()

    assert stored(tmp_path, "lr") == {2: 0.25, 3: 0.375, 5: 0.5}


def test_a_rate_that_a_hook_sets_before_a_batch_is_of_that_batch(tmp_path: Path) -> None:
    def halve(step_num: int, train_manager: TrainManager) -> None:
        if step_num == 1:
            train_manager.optimizer.param_groups[0]["lr"] = 0.25

    tiny_manager(MetricStore(), Extension.of(pre_train_step_batch=halve), train_dir=tmp_path).train()

    assert stored(tmp_path, "lr") == {1: 0.5, 2: 0.25}


def test_after_the_run_the_optimizer_is_as_it_was(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.train()

    assert not tm.optimizer._optimizer_step_pre_hooks


def test_a_store_that_pauses_in_a_phase_has_no_row_of_it(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    with tm.run():
        tm.train_steps(2)
        with tm.phase("head", without=["metric_store"], epochs=1):
            tm.train()
        tm.train_steps(1)

    assert list(stored(tmp_path, "loss")) == [1, 2, 6]


def test_the_rows_after_steps_that_are_set_back_between_two_calls_no_longer_count(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.train_steps(3)
    tm.step_num = 1
    tm.train_steps(1)

    assert list(stored(tmp_path, "loss")) == [1, 2]


def train_until_killed(folder: Path) -> None:
    """Train until a step that never ends, long after the rows before it were written."""

    store = MetricStore()

    def wait(step_num: int) -> None:
        if step_num == 2:
            eventually(lambda: not thread_of(store).waiting)
            print("written", flush=True)
            os._exit(9)

    tiny_manager(store, Extension.of(pre_train_step_batch=wait), train_dir=folder).train()


def test_a_run_that_is_killed_has_the_rows_of_a_second_before(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(train_until_killed, tmp_path)

    assert (child.wait_for("written"), child.wait()) == ("written", 9)
    assert list(stored(tmp_path, "loss")) == [1, 2]


class CountedRow(dict[str, Any]):
    """A row of the history that counts how often it is looked at."""

    looks = 0

    def keys(self) -> Any:
        type(self).looks += 1
        return super().keys()


def looks_of_runs(tm: TrainManager, rows: int) -> int:
    """Return how often rows of a long history are copied in ten runs of one batch."""
    tm.history.evaluations[:0] = [CountedRow(set="valid", loss=0.5, epoch=0, step=0) for _ in range(rows)]
    batch = next(iter(tm.train_data or ()))
    tm.train_on_batch(batch)
    CountedRow.looks = 0
    for _ in range(10):
        tm.train_on_batch(batch)
    return CountedRow.looks


def test_a_run_of_one_batch_copies_no_row_of_the_history(tmp_path: Path) -> None:
    assert looks_of_runs(tiny_manager(MetricStore(), train_dir=tmp_path), rows=100) == 0
