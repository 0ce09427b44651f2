from __future__ import annotations

import copy
import math
import os
import pickle
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

from tests.support.eventually import eventually
from tests.support.fork_server import ForkServer
from tests.support.resuming import Kill, KilledError, Resume
from train_manager import Extension, Interleaved, TrainManager, add_loss, always, every, modifies, priority, scheduled
from train_manager.errors import CheckError, CheckpointError
from train_manager.extensions import Accumulate, Checkpoints, LRSchedule, Metrics, MetricStore, WarmUp
from train_manager.runs.store import training
from train_manager.runs.store.priorities import AFTER_STORE
from train_manager.runs.store.schema import Series
from train_manager.runs.store.thread import StoreThread
from train_manager.runs.store.writer import MetricWriter
from train_manager.telling.errors import InputError, StageError
from train_manager.testing import tiny_manager
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


def test_rows_are_taken_out_of_the_history_while_it_trains(tmp_path: Path) -> None:
    def post_train_step_epoch(epoch_num: int, train_manager: TrainManager) -> None:
        if epoch_num == 3:
            del train_manager.history.epochs[:2]

    tm = tiny_manager(MetricStore(), epochs=5, train_dir=tmp_path)
    tm.add_extension(post_train_step_epoch=post_train_step_epoch)
    tm.train()

    assert history_is_that_of(tm, tmp_path)
    assert len(stored(tmp_path, "loss")) == 15


def test_metrics_that_are_not_numbers_are_in_the_history_too(tmp_path: Path) -> None:
    class Odd(Extension):
        @modifies("train_result")
        def post_train_step_epoch(self, train_result: dict[str, Any]) -> dict[str, Any]:
            return {**train_result, "each": [0.5, 1], "note": "ü", "nothing": math.inf}

    tm = tiny_manager(MetricStore(), Odd(), train_dir=tmp_path)
    tm.train()

    assert history_is_that_of(tm, tmp_path)
    assert [series.name for series in read_run(tmp_path).metrics.series() if series.stage == "train_step_epoch"] == [
        "loss",
        "nothing",
    ]


def test_a_number_that_no_float_holds_keeps_no_row_back(tmp_path: Path) -> None:
    class Huge(Extension):
        @modifies("train_result")
        def post_train_step_epoch(self, train_result: dict[str, Any]) -> dict[str, Any]:
            return {**train_result, "huge": 10**400}

    tm = tiny_manager(MetricStore(), Huge(), train_dir=tmp_path)
    tm.train()

    assert history_is_that_of(tm, tmp_path)


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


class Writes(Extension):
    def pre_run(self, writer: Any) -> None:
        writer.text("note", "begun")

    def post_train_step_batch(self, writer: Any, step_num: int) -> None:
        writer.scalar("twice", 2 * step_num)

    def post_eval(self, writer: Any) -> None:
        writer.scalar("of_eval", torch.tensor(0.5))


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


# ---- resuming --------------------------------------------------------------------------------------------------------


def killed(folder: Path, after: int, **options: Any) -> dict[str, Any]:
    """Train until a step; return the state after the step before it."""
    tm = tiny_manager(MetricStore(), train_dir=folder, **options)
    tm.add_extension(kill := Kill(after), "kill")
    with pytest.raises(KilledError):
        tm.train()
    return kill.states[after - 1]


def without_parameters(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name != "parameters"}


def killed_with_checkpoints(folder: Path, after: int, epochs: int = 3) -> None:
    """Train until a step, with a checkpoint of every step."""

    def kill(step_num: int) -> None:
        if step_num == after:
            raise KilledError

    tm = tiny_manager(MetricStore(), Checkpoints(every(1), keep=10), epochs=epochs, train_dir=folder)
    tm.add_extension(pre_train_step_batch=kill)
    with pytest.raises(KilledError):
        tm.train()


def resumed(
    folder: Path, *extensions: Any, at: Any = "last", epochs: int = 3, into: Path | None = None
) -> TrainManager:
    used = MetricStore(), Checkpoints(every(1), keep=10, resume=True, at=at), *extensions
    tm = tiny_manager(*used, epochs=epochs, train_dir=into or folder)
    tm.train()
    return tm


@pytest.mark.parametrize("after", [2, 4, 7])
def test_after_a_resume_the_store_has_what_the_training_has(tmp_path: Path, after: int) -> None:
    killed_with_checkpoints(tmp_path, after)
    tm = resumed(tmp_path, losses := Losses())

    assert history_is_that_of(tm, tmp_path)
    found = stored(tmp_path, "loss")
    assert list(found) == list(range(1, 10))
    assert {step: found[step] for step in losses.values} == losses.values


def steps_of(folder: Path, name: str = "loss", stage: str = "train_step_batch", run: str | None = None) -> list[int]:
    found = read_run(folder).metrics.scalars(name, stage, run=run)
    return [step for of in found.values() for step in of.steps]


def steps_of_all_runs(folder: Path) -> list[list[int]]:
    """The steps of the losses that count for each run, the oldest first."""
    runs = dict.fromkeys(part.run for part in read_run(folder).metrics.runs())
    return [steps_of(folder, run=run) for run in runs]


def test_a_resume_leaves_the_rows_of_the_run_before_as_they_are(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 7)
    resumed(tmp_path, at=tmp_path / "checkpoints" / "step-000000000004")

    assert steps_of_all_runs(tmp_path) == [[*range(1, 8)], [*range(1, 10)]]
    assert steps_of(tmp_path, stage="train_step_epoch") == [3, 6, 9]


def test_after_four_resumes_in_a_row_each_step_counts_once(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 3)
    for after in (5, 6, 8):
        with pytest.raises(KilledError):
            resumed(tmp_path, KillAt(after))
    tm = resumed(tmp_path)

    assert steps_of(tmp_path) == list(range(1, 10))
    assert [len(steps) for steps in steps_of_all_runs(tmp_path)] == [3, 5, 6, 8, 9]
    assert history_is_that_of(tm, tmp_path)


class KillAt(Extension):
    """Leave the training before a step."""

    def __init__(self, after: int) -> None:
        self.after = after

    def pre_train_step_batch(self, step_num: int) -> None:
        if step_num == self.after:
            raise KilledError


def test_a_training_from_nothing_is_another_run(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path / "a", 4)
    tiny_manager(MetricStore(), train_dir=tmp_path / "a").train()

    assert steps_of_all_runs(tmp_path / "a") == [[1, 2, 3, 4], [1, 2, 3]]
    assert list(stored(tmp_path / "a", "loss")) == [1, 2, 3]


def test_a_state_that_tells_no_run_goes_on_from_none(tmp_path: Path) -> None:
    state = killed(tmp_path, 4, epochs=2)
    tm = tiny_manager(MetricStore(), Resume(state), epochs=2, train_dir=tmp_path)
    tm.train()

    assert steps_of_all_runs(tmp_path) == [[1, 2, 3, 4], [4, 5, 6]]
    assert history_is_that_of(tm, tmp_path)


def test_a_checkpoint_of_a_training_continues_with_the_rows_of_that_one(tmp_path: Path) -> None:
    first = tiny_manager(MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path)
    first.train()
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    checkpoint = tmp_path / "checkpoints" / "step-000000000006"
    tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path).train()

    assert steps_of_all_runs(tmp_path) == [[1, 2, 3, 4, 5, 6], [1, 2, 3], [*range(1, 10)]]
    assert list(stored(tmp_path, "loss")) == list(range(1, 10))


def test_a_checkpoint_of_another_folder_counts_no_row_of_this_one(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path / "other").train()
    tiny_manager(MetricStore(), epochs=3, train_dir=tmp_path / "here").train()
    checkpoint = tmp_path / "other" / "checkpoints" / "step-000000000006"
    tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path / "here").train()

    assert steps_of_all_runs(tmp_path / "here") == [[*range(1, 10)], [7, 8, 9]]
    assert list(stored(tmp_path / "here", "loss")) == [7, 8, 9]


def test_the_row_of_a_part_of_an_epoch_gives_way_to_the_next_one(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.train_steps(2)
    assert steps_of(tmp_path, stage="train_step_epoch") == [2]
    tm.train_steps(1)

    assert steps_of(tmp_path, stage="train_step_epoch") == [3]


def test_a_resume_into_another_folder_brings_the_history_along(tmp_path: Path) -> None:
    state = killed(tmp_path / "first", 4, epochs=2)
    tm = tiny_manager(MetricStore(), Resume(state), epochs=2, train_dir=tmp_path / "second")
    tm.train()

    assert history_is_that_of(tm, tmp_path / "second")


def test_the_rows_after_a_state_that_is_loaded_between_two_calls_no_longer_count(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), losses := Losses(), train_dir=tmp_path)
    tm.train_steps(4)
    state = copy.deepcopy(tm.state_dict())
    tm.train_steps(5)
    tm.load_state_dict(without_parameters(state))
    tm.train_steps(3)

    assert list(stored(tmp_path, "loss")) == [1, 2, 3, 4, 5, 6, 7]
    assert stored(tmp_path, "loss")[6] == losses.values[6]
    assert history_is_that_of(tm, tmp_path)


class Calls(Extension):
    """Write how many steps were trained so far, which tells the rows of one step apart."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {}  # it counts on where the training goes back

    def post_train_step_batch(self, writer: MetricWriter) -> None:
        self.count += 1
        writer.scalar("calls", self.count)


def test_a_state_of_a_later_step_goes_on_from_the_rows_that_led_to_it(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), Calls(), train_dir=tmp_path)
    tm.train_steps(2)
    early = copy.deepcopy(tm.state_dict())
    tm.train_steps(3)
    late = copy.deepcopy(tm.state_dict())
    tm.load_state_dict(early)
    tm.train_steps(2)
    between = copy.deepcopy(tm.state_dict())
    tm.load_state_dict(late)
    tm.train_steps(1)

    assert stored(tmp_path, "calls", "") == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8}
    tm.load_state_dict(between)
    tm.train_steps(1)
    assert stored(tmp_path, "calls", "") == {1: 1, 2: 2, 3: 6, 4: 7, 5: 9}


def test_of_a_program_that_is_started_again_only_the_new_rows_count(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), epochs=3, train_dir=tmp_path).train()
    tm = tiny_manager(MetricStore(), epochs=1, train_dir=tmp_path)
    tm.train()

    assert list(stored(tmp_path, "loss")) == [1, 2, 3]
    assert history_is_that_of(tm, tmp_path)


def test_a_program_that_only_evaluates_adds_to_the_history(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    before = read_run(tmp_path).history
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.eval()
    after = read_run(tmp_path).history

    assert (after.epochs, after.evaluations) == (before.epochs, [*before.evaluations, *tm.history.evaluations])


def test_a_training_and_its_copy_are_two_runs(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), losses := Losses(), train_dir=tmp_path)
    tm.train_steps(4)
    copy.deepcopy(tm).train_steps(3)
    tm.train_steps(2)
    history = read_run(tmp_path).metrics.history(tm.run_id)

    assert stored(tmp_path, "loss", run=tm.run_id) == losses.values
    assert (history["epochs"], history["evaluations"]) == (tm.history.epochs, tm.history.evaluations)


def test_an_evaluation_of_an_earlier_checkpoint_cuts_nothing(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(every(1), keep=10), epochs=1, train_dir=tmp_path).train()
    resumed(tmp_path, epochs=3)
    before = read_run(tmp_path).history
    checkpoint = tmp_path / "checkpoints" / "step-000000000003"
    tm = tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), Writes(), epochs=1, train_dir=tmp_path)
    tm.eval()
    after = read_run(tmp_path).history

    assert list(stored(tmp_path, "loss")) == [*range(1, 10)]
    assert stored(tmp_path, "of_eval", "") == {3: 0.5}
    # A program that has resumed may train next: its evaluation is not a row of the history yet.
    assert (after.epochs, after.evaluations) == (before.epochs, before.evaluations)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_evaluation_before_the_training_is_of_the_same_run(tmp_path: Path, is_first: bool) -> None:
    if not is_first:
        tiny_manager(MetricStore(), Writes(), epochs=3, train_dir=tmp_path).train()
    tm = tiny_manager(MetricStore(), Writes(), losses := Losses(), train_dir=tmp_path)
    tm.eval()
    tm.train()

    assert stored(tmp_path, "loss") == losses.values
    assert history_is_that_of(tm, tmp_path)
    [found] = read_run(tmp_path).metrics.scalars("of_eval").values()
    # Where another training is in the folder, the evaluation was of that one, as far as the store knew.
    assert found.steps == ([0, 0, 3] if is_first else [0, 3])


def test_a_training_after_an_evaluation_of_its_checkpoint_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    killed_with_checkpoints(tmp_path, 7)
    checkpoint = tmp_path / "checkpoints" / "step-000000000004"
    tm = tiny_manager(MetricStore(), Checkpoints(resume=True, at=checkpoint), epochs=3, train_dir=tmp_path)
    tm.eval()
    tm.train()

    assert list(stored(tmp_path, "loss")) == [*range(1, 10)]
    assert history_is_that_of(tm, tmp_path)


def test_a_checkpoint_whose_manifest_tells_no_run_goes_on_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_with_checkpoints(tmp_path, 4)
    monkeypatch.setattr(training, "run_of", lambda checkpoint: None)
    tm = resumed(tmp_path)

    assert list(stored(tmp_path, "loss")) == [*range(5, 10)]
    assert history_is_that_of(tm, tmp_path)


def test_two_trainings_at_once_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    """Neither deletes or hides the rows of the other, whichever began first."""
    one, two = (tiny_manager(MetricStore(), Writes(), epochs=4, train_dir=tmp_path) for _ in range(2))
    with one.run(), two.run():
        for tm in (one, two, two, one, one):
            tm.train_epochs(1)

    metrics = read_run(tmp_path).metrics
    for tm, steps in ((one, 9), (two, 6)):
        assert steps_of(tmp_path, run=tm.run_id) == [*range(1, steps + 1)]
        assert steps_of(tmp_path, "twice", "", run=tm.run_id) == [*range(1, steps + 1)]
        assert metrics.history(tm.run_id) == tm.history.state_dict()
    assert {part.run for part in metrics.runs()} == {one.run_id, two.run_id}


def train_beside_another(folder: Path) -> None:
    tm = tiny_manager(MetricStore(), Writes(), epochs=40, train_dir=folder)
    tm.train()
    print("trained", tm.run_id, flush=True)


def test_two_processes_train_in_one_folder_at_once(fork_server: ForkServer, tmp_path: Path) -> None:
    children = [fork_server.start(train_beside_another, tmp_path) for _ in range(2)]
    runs = [child.wait_for("trained").split()[1] for child in children]

    assert [child.wait() for child in children] == [0, 0]
    assert [child.errors for child in children] == ["", ""]
    for run in runs:
        assert steps_of(tmp_path, run=run) == steps_of(tmp_path, "twice", "", run=run) == [*range(1, 121)]


def evaluate_in_a_child(folder: Path) -> None:
    tm = tiny_manager(store := MetricStore(), Writes(), epochs=2, train_dir=folder)
    with tm.run():
        tm.train_epochs(1)
        thread_of(store).flush()
        child = os.fork()
        if child == 0:
            tm.eval()
            tm.train_epochs(1)
            thread_of(store).flush()
            os._exit(0)
        os.waitpid(child, 0)
        tm.train_epochs(1)
    metrics = read_run(folder).metrics
    steps = [of.steps for of in metrics.scalars("loss", "train_step_batch", run=tm.run_id).values()]
    print("done", steps, metrics.history(tm.run_id) == tm.history.state_dict(), len(metrics.runs()), flush=True)


def test_a_forked_child_that_evaluates_changes_nothing_of_its_parents_run(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    child = fork_server.start(evaluate_in_a_child, tmp_path)

    assert child.wait_for("done") == "done [[1, 2, 3, 4, 5, 6]] True 2"
    assert child.wait() == 0


def test_two_managers_write_into_two_folders(tmp_path: Path) -> None:
    one, two = (tiny_manager(MetricStore(), train_dir=tmp_path / name) for name in ("one", "two"))
    with one.run(), two.run():
        one.train_epochs(2)
        two.train_epochs(1)

    assert history_is_that_of(one, tmp_path / "one")
    assert history_is_that_of(two, tmp_path / "two")


def test_an_extension_in_use_can_be_pickled(tmp_path: Path) -> None:
    tm = tiny_manager(store := MetricStore(), train_dir=tmp_path)
    tm.train()
    again = pickle.loads(pickle.dumps(store))
    tiny_manager(again, train_dir=tmp_path / "again").train()

    assert list(stored(tmp_path / "again", "loss")) == [1, 2, 3]


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


def test_a_metric_that_is_written_within_a_step_is_of_that_step(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), WritesWithin(), epochs=2, train_dir=tmp_path).train()

    (found,) = read_run(tmp_path).metrics.scalars("within").values()
    assert found.steps == [1, 2, 3, 4, 5, 6]


def test_a_metric_of_a_step_that_did_not_end_no_longer_counts_as_the_training_continues(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        tiny_manager(MetricStore(), WritesWithin(3), Checkpoints(), epochs=2, train_dir=tmp_path).train()
    tiny_manager(MetricStore(), WritesWithin(), Checkpoints(resume=True), epochs=2, train_dir=tmp_path).train()

    (found,) = read_run(tmp_path).metrics.scalars("within").values()
    assert found.steps == [1, 2, 3, 4, 5, 6]


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


def test_the_hook_of_each_batch_adds_nothing_to_the_rows_of_the_loop(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), train_dir=tmp_path).train()

    (batches,) = (
        rows for (name, stage, *_), rows in all_rows(tmp_path).items() if (name, stage) == ("loss", "train_step_batch")
    )
    assert [row[0] for row in batches] == [1, 2, 3]


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


def test_an_evaluation_alone_copies_no_row_of_a_history_that_is_long(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), train_dir=tmp_path)
    tm.history.evaluations[:0] = [CountedRow(set="valid", loss=0.5, epoch=0, step=0) for _ in range(100)]
    CountedRow.looks = 0
    for _ in range(5):
        tm.eval()

    assert CountedRow.looks <= 1  # the last one, with which a change is found
