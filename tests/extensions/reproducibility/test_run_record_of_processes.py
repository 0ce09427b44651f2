"""The record of runs of several processes, and beside Checkpoints."""

from __future__ import annotations

import gc
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.extensions.reproducibility.recorded_runs import the_entry, the_file
from tests.support.fork_server import ForkServer
from tests.support.training import At
from train_manager.extensions import Checkpoints, RunRecord
from train_manager.files.lock import WriterLock
from train_manager.runs.record import run_file as module_of_files
from train_manager.runs.record.processes import is_gone, this_process
from train_manager.runs.record.run_file import outcome_of, read_runs, write_entry
from train_manager.testing import tiny_manager

# ---- processes -------------------------------------------------------------------------------------------------------


def train_until_told(train_dir: Path) -> None:
    tell = At("post_train_step_batch", lambda step_num: step_num == 2 and print("step 2", flush=True))
    tiny_manager(RunRecord(), Checkpoints("end"), tell, eval_at=(), epochs=10**6, train_dir=train_dir).train()


def test_a_training_that_sigterm_ends_says_so(tmp_path: Path, fork_server: ForkServer) -> None:
    child = fork_server.start(train_until_told, tmp_path)
    child.wait_for("step 2")
    child.signal(signal.SIGTERM)

    assert child.wait() == 143
    assert outcome_of(the_entry(tmp_path)) == "stopped: SIGTERM"


def test_a_training_that_is_killed_ended_without_a_word(tmp_path: Path, fork_server: ForkServer) -> None:
    child = fork_server.start(train_until_told, tmp_path)
    child.wait_for("step 2")
    running = outcome_of(the_entry(tmp_path))
    child.signal(signal.SIGKILL)
    child.wait()

    assert (running, outcome_of(the_entry(tmp_path))) == (
        "running",
        f"ended without a word (process {child.pid} is gone)",
    )


def a_loop_of_ones_own(train_dir: Path, steps: int, ends: bool) -> None:
    tm = tiny_manager(RunRecord(), train_dir=train_dir)
    for _ in range(steps):
        tm.train_on_batch((torch.rand(4, 2), torch.tensor([0, 1, 0, 1])))
    if not ends:
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_is_left_is_written_as_the_process_ends(tmp_path: Path, fork_server: ForkServer) -> None:
    assert fork_server.start(a_loop_of_ones_own, tmp_path, 100, True).wait() == 0
    entry = the_entry(tmp_path)

    assert (entry["outcome"], entry["progress"]["steps"], entry["calls"]) == ("completed", 100, {"train_on_batch": 100})


def test_a_loop_of_ones_own_that_is_killed_is_not_called_completed(tmp_path: Path, fork_server: ForkServer) -> None:
    child = fork_server.start(a_loop_of_ones_own, tmp_path, 3, False)
    child.wait()

    assert outcome_of(the_entry(tmp_path)) == f"ended without a word (process {child.pid} is gone)"


def leave_a_run_open(train_dir: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=train_dir, epochs=2)
    tm.open()
    tm.train()
    tm.train_on_batch((torch.rand(4, 2), torch.tensor([0, 1, 0, 1])))


def test_a_run_that_the_program_never_closes_is_stopped(tmp_path: Path, fork_server: ForkServer) -> None:
    fork_server.start(leave_a_run_open, tmp_path).wait()

    assert outcome_of(the_entry(tmp_path)) == "stopped: the run was left"
    assert the_entry(tmp_path)["calls"] == {"run": 1}


def test_a_run_that_the_program_never_closes_records_what_was_trained(tmp_path: Path, fork_server: ForkServer) -> None:
    fork_server.start(leave_a_run_open, tmp_path).wait()
    entry = the_entry(tmp_path)

    assert entry["progress"] == {"epochs": 2, "steps": 7, "updates": 7, "samples": 84}
    assert list(entry["metrics"]) == ["loss", "valid/loss"]


def test_a_loop_of_ones_own_renews_the_entry_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, seen = 1000.0, []
    monkeypatch.setattr(module_of_files, "time", SimpleNamespace(monotonic=lambda: now))
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    for _ in range(32):
        tm.train_on_batch((torch.rand(4, 2), torch.tensor([0, 1, 0, 1])))
        seen.append(the_entry(tmp_path)["progress"]["steps"])
        now += 0.125

    assert sorted({*seen}) == [0, 8, 16, 24]


def test_nothing_is_written_as_the_manager_is_collected_if_nothing_is_left(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    tm.train()
    the_file(tmp_path).unlink()
    del tm
    gc.collect()

    assert not [*tmp_path.iterdir()]


def test_what_is_left_is_written_as_the_manager_is_collected(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    for batch in list(tm.train_data or ()) * 20:
        tm.train_on_batch(batch)
    assert outcome_of(the_entry(tmp_path)) == "running"
    del tm
    gc.collect()

    assert (the_entry(tmp_path)["outcome"], the_entry(tmp_path)["progress"]["steps"]) == ("completed", 60)


BEGAN = "2026-01-02T03:04:05.678+00:00"


def write_many(train_dir: Path, first: int, count: int) -> None:
    for number in range(first, first + count):
        process = this_process()
        write_entry(train_dir, {"id": f"{number}", "began": BEGAN, "outcome": "running", "process": process})
        print(number, flush=True)


def test_processes_that_write_at_once_lose_no_entry(tmp_path: Path, fork_server: ForkServer) -> None:
    children = [fork_server.start(write_many, tmp_path, 100 * number, 20) for number in range(8)]
    assert [child.wait() for child in children] == [0] * 8

    numbers = [100 * child + number for child in range(8) for number in range(20)]
    assert sorted(int(entry["id"]) for entry in read_runs(tmp_path)) == numbers


def test_a_process_that_is_killed_while_it_writes_leaves_a_file_that_can_be_read(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    draw = random.Random(0)
    for attempt in range(8):
        child = fork_server.start(write_many, tmp_path, 1000 * attempt, 1000)
        last = child.wait_for(str(1000 * attempt + draw.randrange(12)))
        child.signal(signal.SIGKILL)
        child.wait()
        runs = read_runs(tmp_path)

        assert last in {run["id"] for run in runs}
        assert all(is_gone(run["process"]) for run in runs)


def is_killed_as_it_calls(name: str, train_dir: Path) -> None:
    setattr(os, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    tiny_manager(RunRecord(), train_dir=train_dir).train()


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_kill_in_the_middle_of_writing_leaves_the_entries_before(
    tmp_path: Path, fork_server: ForkServer, call: str
) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    assert fork_server.start(is_killed_as_it_calls, call, tmp_path).wait() == -signal.SIGKILL

    assert the_entry(tmp_path)["outcome"] == "completed"
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    assert [entry["outcome"] for entry in read_runs(tmp_path)] == ["completed", "completed"]


# ---- beside Checkpoints ----------------------------------------------------------------------------------------------


def test_a_run_that_resumes_says_from_where(tmp_path: Path) -> None:
    first = tiny_manager(RunRecord(), Checkpoints(), train_dir=tmp_path)
    first.train()
    seen: list[Any] = []
    look = At("pre_train_step_epoch", lambda train_dir: seen.append(read_runs(train_dir)[1]["goes_on_from"]))
    tiny_manager(RunRecord(), Checkpoints(resume=True), look, epochs=2, train_dir=tmp_path).train()
    before, entry = read_runs(tmp_path)

    assert before["goes_on_from"] is None
    assert seen == [entry["goes_on_from"]]
    assert entry["goes_on_from"] == {"checkpoint": "step-000000000003", "step": 3, "run": first.run_id}
    assert entry["progress"]["steps"] == 6


def test_a_run_that_begins_anew_is_recorded_in_the_new_folder(tmp_path: Path) -> None:
    train_dir = tmp_path / "digits"
    tiny_manager(RunRecord(), Checkpoints(), train_dir=train_dir).train()
    tiny_manager(RunRecord(), Checkpoints(resume="fresh"), train_dir=train_dir).train()

    old, new = the_entry(tmp_path / "digits-before-1"), the_entry(train_dir)
    assert (old["outcome"], new["outcome"]) == ("completed", "completed")
    assert old["id"] != new["id"]


def test_an_evaluation_is_recorded_while_another_one_trains_there(tmp_path: Path) -> None:
    with WriterLock(tmp_path):
        tiny_manager(RunRecord(), train_dir=tmp_path).eval()

    assert the_entry(tmp_path)["outcome"] == "completed"


def test_a_checkpoint_of_another_kind_is_told_without_its_run(tmp_path: Path) -> None:
    (path := tmp_path / "theirs.pt").touch()

    class Loads(At):
        def __init__(self) -> None: ...

        def post_load_checkpoint(self, fixtures: Any) -> None:
            fixtures.modify("checkpoint_loaded", path)

    tiny_manager(Loads(), RunRecord(), train_dir=tmp_path).train()

    assert the_entry(tmp_path)["goes_on_from"] == {"checkpoint": "theirs.pt", "step": 0, "run": None}
