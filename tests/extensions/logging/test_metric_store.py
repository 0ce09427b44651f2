from __future__ import annotations

import copy
import math
import re
import signal
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.extensions.logging.stored import Losses, Writes, history_is_that_of, stored, thread_of
from tests.support.eventually import eventually
from tests.support.fork_server import ForkServer
from tests.support.resuming import KilledError
from train_manager import Extension, TrainManager, add_loss, always, every, modifies, priority
from train_manager.errors import CheckError, CheckpointError
from train_manager.extensions import Checkpoints, LRSchedule, Metrics, MetricStore
from train_manager.runs.store.priorities import AFTER_STORE
from train_manager.runs.store.schema import Series
from train_manager.runs.store.writer import MetricWriter
from train_manager.telling.errors import InputError, StageError
from train_manager.testing import tiny_manager
from train_manager.tools import read_run

# ---- what is stored --------------------------------------------------------------------------------------------------


def test_the_loss_of_every_batch_is_stored(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), losses := Losses(), epochs=2, train_dir=tmp_path)
    tm.train()

    assert stored(tmp_path, "loss") == losses.values


def accuracy(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return prediction.argmax(dim=1) == targets


def test_the_history_is_stored_to_the_bit(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Metrics(accuracy), epochs=3, train_dir=tmp_path)
    tm.train()
    tm.eval()

    assert history_is_that_of(tm, tmp_path)


def test_a_count_of_a_metric_keeps_its_digits(tmp_path: Path) -> None:
    def count(prediction: torch.Tensor, targets: torch.Tensor) -> int:
        return 2**24 + 1

    tm = tiny_manager(MetricStore(), Metrics(count), train_dir=tmp_path)
    tm.train()

    assert (tm.history.epochs[-1]["count"], tm.history.evaluations[-1]["count"]) == (2**24 + 1, 2**24 + 1)
    assert stored(tmp_path, "count", "train_step_epoch") == {3: 2**24 + 1}


def test_a_second_start_that_is_refused_takes_no_row_from_the_training_that_resumes(tmp_path: Path) -> None:
    def started() -> TrainManager:
        return tiny_manager(MetricStore(), Checkpoints(resume=True), epochs=4, train_dir=tmp_path)

    def post_train_step_batch(step_num: int) -> None:
        if step_num == 8:
            with pytest.raises(CheckpointError, match="is being written by another run"):
                started().train()

    tm = started()
    tm.add_extension(post_train_step_batch=post_train_step_batch)
    tm.train()

    assert [*stored(tmp_path, "loss")] == [*range(1, 13)]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_that_a_program_takes_out_of_the_history_are_not_read_back(rows: int, tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), epochs=5, train_dir=tmp_path)
    tm.train()
    del tm.history.epochs[-rows:], tm.history.evaluations[-rows:]
    tm.eval()
    tm.train_epochs(1)

    assert history_is_that_of(tm, tmp_path)


def test_what_is_no_number_or_in_no_float_is_in_the_history_too(tmp_path: Path) -> None:
    class Odd(Extension):
        @modifies("train_result")
        def post_train_step_epoch(self, train_result: dict[str, Any]) -> dict[str, Any]:
            return {**train_result, "each": [0.5, 1], "note": "ü", "huge": 10**400, "nothing": math.inf}

    tm = tiny_manager(MetricStore(), Odd(), train_dir=tmp_path)
    tm.train()

    assert history_is_that_of(tm, tmp_path)
    stored_too = {series.name for series in read_run(tmp_path).metrics.series() if series.stage == "train_step_epoch"}
    assert stored_too == {"loss", "huge", "nothing"}


def test_a_hook_that_needs_a_store_is_told_of_it(tmp_path: Path) -> None:
    with pytest.raises(CheckError) as error:
        tiny_manager(Extension.of(post_train_step_batch=lambda writer: None), train_dir=tmp_path).train()

    cure = "add the extension MetricStore of train_manager.extensions, which provides 'writer'"
    assert str(error.value).endswith(f"\n     {cure}")


def test_a_metric_after_the_run_is_refused(tmp_path: Path) -> None:
    writers: list[Any] = []
    tm = tiny_manager(MetricStore(), Extension.of(pre_train=lambda writer: writers.append(writer)), train_dir=tmp_path)
    tm.train()

    with pytest.raises(InputError) as error:
        writers[0].scalar("late", 0.5)
    cure = "ask for `writer` in a hook of the present run"
    assert str(error.value) == f"a metric was written after its run\n  {cure}"


def test_an_epoch_that_a_phase_interrupts_costs_no_row_of_the_phase(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    with tm.run():
        tm.train_steps(2)
        with tm.phase("head", epochs=2):
            tm.train()
        tm.train()

    assert [row["step"] for row in read_run(tmp_path).history.epochs] == [5, 8, 9]
    assert history_is_that_of(tm, tmp_path)


def test_an_epoch_that_is_trained_in_parts_counts_once(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    for _ in range(3):
        tm.train_steps(2)

    assert history_is_that_of(tm, tmp_path)
    assert list(stored(tmp_path, "loss", "train_step_epoch")) == [3, 6]


def test_learning_rates_are_stored_as_they_change(tmp_path: Path) -> None:
    schedule = LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5), per="step")
    tiny_manager(MetricStore(), schedule, epochs=2, train_dir=tmp_path).train()

    assert stored(tmp_path, "lr") == {1: 0.5, 3: 0.25, 5: 0.125}


def test_batch_sizes_are_stored_as_they_change(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), epochs=2, train_dir=tmp_path)
    tm.train()

    sizes = [len(targets) for _, targets in tm.train_data or ()]
    assert stored(tmp_path, "batch_size") == ({1: 16, 3: 8, 4: 16, 6: 8} if sizes[-1] == 8 else {1: 16})


def test_parts_of_the_loss_are_stored_by_their_names(tmp_path: Path) -> None:
    class Adds(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            add_loss(inputs.new_tensor(0.25), "sparsity")
            return super().forward(inputs)

    model = nn.Sequential(nn.Flatten(), Adds(2, 2))
    tiny_manager(MetricStore(), model=model, train_dir=tmp_path).train()

    assert stored(tmp_path, "losses/sparsity") == {1: 0.25, 2: 0.25, 3: 0.25}


def test_rows_of_a_phase_are_series_of_their_own(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), epochs=1, train_dir=tmp_path)
    with tm.run():
        with tm.phase("head", epochs=1):
            tm.train()
        tm.train()
    found = read_run(tmp_path).metrics.scalars("loss", "train_step_batch")

    assert {series.phase: of.steps for series, of in found.items()} == {"head": [1, 2, 3], "": [4, 5, 6]}
    assert history_is_that_of(tm, tmp_path)


def test_batches_of_ones_own_are_of_the_phase_that_they_are_trained_in(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Writes(), train_dir=tmp_path)
    batch = next(iter(tm.train_data or ()))
    with tm.run():
        with tm.phase("head", optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.25)):
            tm.train_on_batch(batch)
        tm.train_on_batch(batch)
        with tm.phase("tail"):
            tm.train_steps(1)
        tm.train_on_batch(batch)
    metrics = read_run(tmp_path).metrics

    for name in ("loss", "twice"):
        found = metrics.scalars(name, "train_step_batch" if name == "loss" else "")
        assert {series.phase: of.steps for series, of in found.items()} == {"head": [1], "": [2, 4], "tail": [3]}
    rates = metrics.scalars("lr")
    assert {series.phase: of[:2] for series, of in rates.items()} == {"head": ([1], [0.25]), "": ([2], [0.5])}


def test_a_train_batch_without_a_loss_is_stored_without(tmp_path: Path) -> None:
    class Counts(TrainManager):
        def train_batch(self) -> None: ...

    plain = tiny_manager()
    tm = Counts(
        model=plain.model, optimizer=plain.optimizer, train_data=plain.train_data, train_dir=tmp_path,
        extensions=[MetricStore()],
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"^train_batch has not called"):
        tm.train()

    assert {series.name for series in read_run(tmp_path).metrics.series()} == {"batch_size"}


def test_batches_of_a_loop_of_ones_own_are_stored_though_each_is_a_run(tmp_path: Path) -> None:
    tm = tiny_manager(store := MetricStore(), losses := Losses(), train_dir=tmp_path)
    for batch in tm.train_data or ():
        tm.train_on_batch(batch)
    thread_of(store).close()

    assert stored(tmp_path, "loss") == losses.values


# ---- metrics of hooks ------------------------------------------------------------------------------------------------


def test_hooks_write_metrics_with_the_fixture_writer(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Writes(), train_dir=tmp_path).train()
    metrics = read_run(tmp_path).metrics

    assert stored(tmp_path, "twice", "") == {1: 2, 2: 4, 3: 6}
    assert stored(tmp_path, "of_eval", "") == {0: 0.5, 3: 0.5}
    assert metrics.texts() == {Series("note"): [(0, "begun")]}


class WritesAtTheEnd(Extension):
    """Write a metric as the run ends; fail then, if it is told to."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    @priority(1000)
    @always
    def post_run(self, writer: MetricWriter | None = None) -> None:
        if writer is not None:
            writer.array("last", [1.0, 2.0])
        if self.fails:
            raise KilledError


@pytest.mark.parametrize("fails", [False, True])
def test_the_store_takes_metrics_until_all_other_hooks_of_the_run_are_done(tmp_path: Path, fails: bool) -> None:
    tm = tiny_manager(MetricStore(), WritesAtTheEnd(fails), train_dir=tmp_path)
    with pytest.raises(KilledError) if fails else nullcontext():
        tm.train()

    [[row]] = read_run(tmp_path).metrics.arrays("last").values()
    assert (row.step, row.values.tolist()) == (3, [1.0, 2.0])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.sqlite"]  # closed


class Reads(Extension):
    """Read the whole file as the run ends."""

    found: Any = None

    @priority(AFTER_STORE)
    @always
    def post_run(self, train_dir: Path) -> None:
        self.found = read_run(train_dir).metrics.arrays("last"), [path.name for path in train_dir.iterdir()]


def test_what_reads_the_file_at_the_end_of_the_run_finds_it_whole_and_closed(tmp_path: Path) -> None:
    tiny_manager(reads := Reads(), WritesAtTheEnd(), MetricStore(), train_dir=tmp_path).train()

    assert len(reads.found[0][Series("last")]) == 1
    assert reads.found[1] == ["metrics.sqlite"]


class Watcher(Extension):
    """Has a row for each step, also without a store."""

    def __init__(self) -> None:
        self.writers: list[MetricWriter | None] = []

    def post_train_step_batch(self, model: nn.Module, writer: MetricWriter | None = None) -> None:
        self.writers.append(writer)
        if writer is not None:
            writer.array("norms", [weight.norm() for weight in model.parameters()])
            writer.image("weights", next(model.parameters()))

    @always
    def post_run(self, writer: MetricWriter | None = None) -> None:
        self.writers.append(writer)


@pytest.mark.parametrize("train_dir", [True, False])
def test_a_watcher_alone_works_without_a_store(tmp_path: Path, train_dir: bool) -> None:
    tm = tiny_manager(watcher := Watcher(), train_dir=tmp_path if train_dir else None)
    tm.check()
    tm.train()

    assert watcher.writers == [None] * 4


def test_the_metrics_of_a_watcher_are_there_in_a_phase_and_after_a_resume(tmp_path: Path) -> None:
    extensions = [Watcher(), MetricStore(), Checkpoints(resume=True)]
    for epochs in (1, 2):
        tiny_manager(*map(copy.deepcopy, extensions), epochs=epochs, train_dir=tmp_path).train()
    metrics = read_run(tmp_path).metrics

    [rows] = metrics.arrays("norms").values()
    assert [row.step for row in rows] == [1, 2, 3, 4, 5, 6]
    [files] = metrics.files("weights").values()
    assert [path for _, path, *_ in files] == [f"plots/weights-{step}.png" for step in range(1, 7)]


def write_arrays_until_killed(folder: str) -> None:
    class Kill(Extension):
        def post_train_step_batch(self, step_num: int, writer: MetricWriter) -> None:
            writer.array("norms", torch.full((3,), float(step_num)), ["a", "b", "c"])
            writer.histogram("weights", torch.rand(10))
            if step_num == 50:
                print("begun", flush=True)

    tiny_manager(MetricStore(), Kill(), epochs=10**6, train_dir=folder).train()


def test_a_run_that_is_killed_has_whole_arrays_and_continues(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(write_arrays_until_killed, str(tmp_path))
    child.wait_for("begun")
    eventually(lambda: (tmp_path / "metrics.sqlite").exists() and (tmp_path / "metrics.sqlite").stat().st_size > 0)
    eventually(lambda: len(rows_of_norms(tmp_path)) > 20)
    child.signal(signal.SIGKILL)
    child.wait()
    rows = rows_of_norms(tmp_path)

    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.values.tolist() == [row.step] * 3 and row.labels == ("a", "b", "c") for row in rows)
    tiny_manager(MetricStore(), WritesAtTheEnd(), train_dir=tmp_path).train()
    assert not rows_of_norms(tmp_path)  # a training that has begun anew is another run


def rows_of_norms(folder: Path) -> list[Any]:
    try:
        return [row for of in read_run(folder).metrics.arrays("norms").values() for row in of]
    except InputError:  # nothing in it yet
        return []


@pytest.mark.parametrize("store_first", [True, False])
def test_a_checkpoint_waits_until_the_rows_of_its_step_are_written(store_first: bool, tmp_path: Path) -> None:
    written: dict[int, list[int]] = {}

    class Reads(Extension):
        def post_save_checkpoint(self, step_num: int) -> None:
            written[step_num] = [*stored(tmp_path, "loss")]

    used = [MetricStore(), Checkpoints(every(2))]
    tiny_manager(*(used if store_first else reversed(used)), Reads(), epochs=2, train_dir=tmp_path).train()

    assert written == {step: [*range(1, step + 1)] for step in (2, 4, 6)}


def test_what_an_evaluation_writes_takes_the_place_of_no_row(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Writes(), train_dir=tmp_path).train()
    tiny_manager(MetricStore(), Writes(), train_dir=tmp_path).eval()

    assert list(stored(tmp_path, "loss")) == [1, 2, 3]
    [found] = read_run(tmp_path).metrics.scalars("of_eval").values()
    assert found.steps == [0, 3, 0]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_hook_that_is_called_before_a_run_is_refused() -> None:
    with pytest.raises(StageError) as error:
        MetricStore().pre_eval()
    what = "a hook of MetricStore was called, but no run has opened its file"
    assert str(error.value) == f"{what}\n  call it in a run: with tm.run(): ..."


def test_a_training_whose_metrics_cannot_be_written_continues_and_warns_once(tmp_path: Path) -> None:
    (tmp_path / "metrics.sqlite").mkdir()
    tm = tiny_manager(MetricStore(), epochs=3, train_dir=tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tm.train()

    assert tm.epoch_num == 3
    [warning] = told
    what = r"metrics\.sqlite cannot be written: unable to open database file; \d+ metrics wait; the run continues$"
    assert re.search(what, str(warning.message))
    assert warning.filename == __file__
    (tmp_path / "metrics.sqlite").rmdir()
    tm.eval()
    assert history_is_that_of(tm, tmp_path)


def test_an_error_in_the_training_loses_nothing(tmp_path: Path) -> None:
    class Breaks(Extension):
        def pre_train_step_batch(self, step_num: int) -> None:
            if step_num == 2:
                raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match=r"^broken"):
        tiny_manager(MetricStore(), Breaks(), train_dir=tmp_path).train()

    assert list(stored(tmp_path, "loss")) == [1, 2]


def train_with_workers(folder: Path) -> None:
    data = TensorDataset(torch.rand(40, 2), torch.randint(2, (40,)))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
    tm = tiny_manager(MetricStore(), train_data=loader, epochs=3, train_dir=folder)
    tm.train()
    print("done", history_is_that_of(tm, folder), len(stored(folder, "loss")), flush=True)


def test_workers_of_a_data_loader_do_not_touch_the_file(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(train_with_workers, tmp_path)

    assert (child.wait_for("done"), child.wait()) == ("done True 15", 0)


class WritesWithin(Extension):
    """Write a metric in the middle of each step, and fail in one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def post_train_backward(self, writer: MetricWriter, step_num: int) -> None:
        writer.scalar("within", float(step_num))
        if step_num == self.fails_at:
            raise ZeroDivisionError


def test_a_metric_of_a_step_that_did_not_end_no_longer_counts_as_the_training_continues(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        tiny_manager(MetricStore(), WritesWithin(3), Checkpoints(), epochs=2, train_dir=tmp_path).train()
    tiny_manager(MetricStore(), WritesWithin(), Checkpoints(resume=True), epochs=2, train_dir=tmp_path).train()

    (found,) = read_run(tmp_path).metrics.scalars("within").values()
    assert found.steps == [1, 2, 3, 4, 5, 6]
