"""What RunRecord writes: when, how a run is said to have ended, and what a crash leaves."""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.extensions.reproducibility.recorded_runs import fail, the_entry, the_file
from tests.support.fork_server import ForkServer
from tests.support.training import At, skip_stage
from train_manager import Extension
from train_manager.extensions import Checkpoints, RunRecord
from train_manager.files.background import Background
from train_manager.files.lock import WriterLock
from train_manager.runs.record import run_file as module_of_files
from train_manager.runs.record.processes import this_process
from train_manager.runs.record.run_file import Entry, outcome_of, read_runs, run_file, write_entry
from train_manager.testing import tiny_manager

# ---- when it is written ----------------------------------------------------------------------------------------------


def test_the_entry_is_there_before_another_hook_runs(tmp_path: Path) -> None:
    seen: list[Entry] = []
    look = At("pre_run", lambda train_dir: seen.extend(read_runs(train_dir)))
    tiny_manager(look, RunRecord(), train_dir=tmp_path).train()

    assert [(entry["outcome"], entry["ended"], entry["calls"]) for entry in seen] == [("running", None, {"train": 1})]


def test_a_run_that_is_completed_has_its_progress_and_its_last_metrics(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), epochs=2, train_dir=tmp_path)
    tm.train()
    entry = the_entry(tmp_path)

    assert (entry["id"], entry["outcome"], entry["reason"], entry["error"]) == (tm.run_id, "completed", None, None)
    assert entry["progress"] == {"epochs": 2, "steps": 6, "updates": 6, "samples": 80}
    assert entry["metrics"] == {
        "loss": tm.history.epochs[-1]["loss"],
        "valid/loss": tm.history.evaluations[-1]["loss"],
    }
    assert entry["began"] < entry["ended"]


def test_many_runs_of_a_manager_are_one_entry(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    tm.train()
    ended = the_entry(tmp_path)["ended"]
    tm.eval()
    tm.train_epochs(1)
    entry = the_entry(tmp_path)

    assert entry["calls"] == {"train": 1, "eval": 1, "train_epochs": 1}
    assert entry["ended"] > ended
    assert entry["progress"]["epochs"] == 2


def test_a_training_that_follows_another_at_once_says_that_it_runs(tmp_path: Path) -> None:
    seen: list[str] = []
    look = At("pre_train_step_epoch", lambda train_dir: seen.append(the_entry(train_dir)["outcome"]))
    tm = tiny_manager(RunRecord(), look, train_dir=tmp_path)
    tm.train()
    tm.train_epochs(1)

    assert seen == ["running", "running"]
    assert the_entry(tmp_path)["outcome"] == "completed"


def test_each_manager_has_an_entry(tmp_path: Path) -> None:
    for _ in range(2):
        tiny_manager(RunRecord(), train_dir=tmp_path).train()

    first, second = read_runs(tmp_path)
    assert first["id"] != second["id"]
    assert first["manager"] + 1 == second["manager"]


def test_a_copy_of_a_manager_has_an_entry_of_its_own(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), optimizer=torch.optim.SGD, train_dir=tmp_path)
    tm.train()
    copy.deepcopy(tm).train_epochs(1)

    assert [entry["progress"]["steps"] for entry in read_runs(tmp_path)] == [3, 6]


def test_a_manager_that_only_evaluates_has_an_entry(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).eval()
    entry = the_entry(tmp_path)

    assert (entry["outcome"], entry["calls"], entry["progress"]["steps"]) == ("completed", {"eval": 1}, 0)
    assert list(entry["metrics"]) == ["valid/loss"]


def test_no_hook_of_it_runs_in_a_step() -> None:
    tm = tiny_manager(RunRecord(), train_dir="unused")

    stages = {hook.stage for hook in tm._registry.hooks if hook.owner == "run_record"}

    assert stages == {"run", "load_checkpoint", "phase", "train"}


# ---- how a run has ended ---------------------------------------------------------------------------------------------


def test_a_failure_is_told_with_its_stage(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), At("pre_train_model_forward", fail), train_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        tm.train()
    entry = the_entry(tmp_path)

    stage = "run > train > train_step_epoch > train_step_batch > train_model_forward"
    assert entry["error"] == {"type": "ZeroDivisionError", "message": "as planned", "stage": stage}
    assert outcome_of(entry) == f"failed: ZeroDivisionError: as planned (at {stage})"


@pytest.mark.parametrize("hook", ["pre_run", "pre_load_checkpoint", "post_train", "post_run"])
def test_a_failure_at_the_edge_of_a_run_is_told(tmp_path: Path, hook: str) -> None:
    with pytest.raises(ZeroDivisionError):
        tiny_manager(At(hook, fail), RunRecord(), train_dir=tmp_path).train()

    assert the_entry(tmp_path)["outcome"] == "failed"


class FailsAround(Extension):
    def around_run(self) -> Iterator[None]:
        fail()
        yield


def test_a_failure_of_another_hook_around_the_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        tiny_manager(FailsAround(), RunRecord(), train_dir=tmp_path).train()

    assert outcome_of(the_entry(tmp_path)) == "failed: ZeroDivisionError: as planned (at run)"


def test_a_checkpoint_that_fails_in_the_background_is_a_failure_of_the_run(tmp_path: Path) -> None:
    checkpoints = Checkpoints("end", in_background=True)
    vars(checkpoints)["_background"] = Background(lambda *_: fail())
    with pytest.raises(ZeroDivisionError):
        tiny_manager(RunRecord(), checkpoints, train_dir=tmp_path).train()

    assert outcome_of(the_entry(tmp_path)) == "failed: ZeroDivisionError: as planned (at run)"


def test_a_message_with_a_secret_is_left_out(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ValueError("no access with hf_abcdefghijklmnopqrstuvwxyz")

    with pytest.raises(ValueError, match="no access"):
        tiny_manager(RunRecord(), At("pre_train", refuse), train_dir=tmp_path).train()

    assert "hf_abc" not in the_file(tmp_path).read_text()


def interrupt() -> None:
    raise KeyboardInterrupt


def leave_program() -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("end", "outcome"), [(interrupt, "stopped: KeyboardInterrupt"), (leave_program, "stopped: SystemExit(3)")]
)
def test_an_interruption_is_no_failure(tmp_path: Path, end: Callable[[], None], outcome: str) -> None:
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        tiny_manager(RunRecord(), At("post_train_step_batch", end), train_dir=tmp_path).train()

    assert outcome_of(the_entry(tmp_path)) == outcome


def test_a_run_that_a_hook_stops_says_why(tmp_path: Path) -> None:
    stop = At("post_train_step_batch", lambda train_manager: train_manager.stop("enough"))
    tiny_manager(RunRecord(), stop, train_dir=tmp_path).train()

    assert outcome_of(the_entry(tmp_path)) == "stopped: enough"


def test_a_run_that_a_hook_skips_says_so(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), At("pre_run", skip_stage), train_dir=tmp_path).train()

    assert outcome_of(the_entry(tmp_path)) == "stopped: a hook has skipped the run"


def test_an_evaluation_leaves_how_the_training_ended(tmp_path: Path) -> None:
    stop = At("post_train_step_batch", lambda train_manager: train_manager.stop("enough"))
    tm = tiny_manager(RunRecord(), stop, train_dir=tmp_path)
    tm.train()
    tm.eval()

    assert outcome_of(the_entry(tmp_path)) == "stopped: enough"


def test_an_evaluation_that_fails_is_told_until_the_next(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    tm.train()
    tm.add_extension(At("pre_eval", fail), "breaks")
    with pytest.raises(ZeroDivisionError):
        tm.eval()
    assert outcome_of(the_entry(tmp_path)) == "failed: ZeroDivisionError: as planned (at run > eval)"
    tm.remove_extension("breaks")
    tm.eval()

    assert outcome_of(the_entry(tmp_path)) == "completed"


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


def test_a_run_that_the_program_never_closes_is_stopped_with_what_was_trained(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    fork_server.start(leave_a_run_open, tmp_path).wait()

    entry = the_entry(tmp_path)

    assert outcome_of(entry) == "stopped: the run was left"
    assert entry["calls"] == {"run": 1}
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
    children = [fork_server.start(write_many, tmp_path, 100 * number, 10) for number in range(4)]
    assert [child.wait() for child in children] == [0] * 4

    numbers = [100 * child + number for child in range(4) for number in range(10)]
    assert sorted(int(entry["id"]) for entry in read_runs(tmp_path)) == numbers


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


# ---- files that are in the way ---------------------------------------------------------------------------------------


def test_a_file_of_another_program_of_the_earlier_name_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    tiny_manager(RunRecord(), train_dir=tmp_path).train()

    assert (tmp_path / "run.json").read_text() == "{}"
    assert len(read_runs(tmp_path)) == 1


def test_a_file_that_another_program_writes_meanwhile_is_left_and_the_run_continues(tmp_path: Path) -> None:
    def spoil(train_dir: Path, train_manager: Any) -> None:
        run_file(train_dir, train_manager.run_id).write_text("{}")

    with pytest.warns(RuntimeWarning, match=r"or not up to date: .*run-\w+\.json is not a file of train_manager"):
        tiny_manager(RunRecord(), At("post_train", spoil), train_dir=tmp_path).train()

    assert the_file(tmp_path).read_text() == "{}"


def test_a_run_whose_record_cannot_be_written_continues_and_says_so_once(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    run_file(tmp_path, tm.run_id).mkdir()
    with pytest.warns(RuntimeWarning, match="the record of this run is not in .*: IsADirectoryError") as caught:
        tm.train()

    assert (tm.step_num, len(caught)) == (3, 1)


def train_in_a_child(train_dir: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=train_dir)
    tm.train()
    pid = os.fork()
    if pid == 0:
        tm.train_epochs(1)
        del tm
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)


def test_a_forked_child_does_not_write_the_file_of_its_parent(tmp_path: Path, fork_server: ForkServer) -> None:
    assert fork_server.start(train_in_a_child, tmp_path).wait() == 0

    assert the_entry(tmp_path)["calls"] == {"train": 1}
