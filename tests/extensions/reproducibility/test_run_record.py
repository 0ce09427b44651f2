"""What RunRecord writes: when, how a run is said to have ended, and what a crash leaves."""

from __future__ import annotations

import copy
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from tests.extensions.reproducibility.recorded_runs import fail, the_entry, the_file
from tests.support.fork_server import ForkServer
from tests.support.programs import code
from tests.support.training import At, skip_stage
from train_manager import Extension, InputError, recorded
from train_manager.extensions import Checkpoints, LRSchedule, RunRecord
from train_manager.extensions.reproducibility import run_record
from train_manager.files.background import Background
from train_manager.rebuilding.recorded_rows import expression
from train_manager.runs.record.run_file import Entry, outcome_of, read_runs, run_file
from train_manager.telling.findings import Finding
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


# ---- what it holds ---------------------------------------------------------------------------------------------------


@recorded
class Net(nn.Module):
    def __init__(self, width: int = 4, scale: float = float("inf"), api_key: str = "") -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Linear(width, 2))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layers(inputs)


def test_parameters_are_those_that_the_manager_was_made_with(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), model=Net(8, api_key="very-private"), seed=3, train_dir=tmp_path).train()
    entry = the_entry(tmp_path)
    model = entry["parameters"]["arguments"]["model"]["arguments"]

    assert (entry["seed"], model["width"], model["scale"]) == (3, 8, {"$float": "inf"})
    assert "very-private" not in the_file(tmp_path).read_text()


def made(train_dir: Path) -> dict[str, str]:
    return {path: expression(tree) for path, tree in the_entry(train_dir)["made"].items()}


def test_what_a_lambda_makes_is_recorded_as_it_was_made(tmp_path: Path) -> None:
    """Not as the schedule, or a hook, has left it."""
    schedule = LRSchedule(lambda optimizer: StepLR(optimizer, 3))
    seen: list[dict[str, str]] = []
    look = At("pre_train_step_batch", lambda: seen.append(made(tmp_path)))
    halve = At("post_train", lambda train_manager: train_manager.optimizer.param_groups[0].update(lr=0.1))
    tm = tiny_manager(
        RunRecord(), schedule, look, halve, optimizer=lambda p: SGD(p, lr=0.25), epochs=4, train_dir=tmp_path
    )
    tm.train()
    tm.train_epochs(1)

    assert seen[0] == made(tmp_path)
    assert seen[0] == {"optimizer": "SGD(lr=0.25)", "extensions.lr_schedule.make": "StepLR(step_size=3)"}


def test_what_a_phase_trains_with_is_recorded(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), optimizer=partial(SGD, lr=0.25), train_dir=tmp_path)
    own = LRSchedule(lambda optimizer: StepLR(optimizer, 3))
    with tm.run():
        tm.train()
        with tm.phase("again", epochs=1):
            tm.train()
        with tm.phase("head", optimizer=SGD, extensions={"own": own}, epochs=1):
            tm.train()

    assert made(tmp_path) == {
        "phase head.optimizer": "SGD()",
        "phase head.extensions.own.make": "StepLR(step_size=3)",
    }


def test_what_a_loop_of_ones_own_in_a_phase_trains_with_is_recorded(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), optimizer=partial(SGD, lr=0.25), train_dir=tmp_path)
    with tm.run(), tm.phase("head", optimizer=SGD):
        tm.train_on_batch((torch.rand(4, 2), torch.tensor([0, 1, 0, 1])))

    assert made(tmp_path) == {"phase head.optimizer": "SGD()"}


def test_a_metric_that_is_no_number_is_left_out_and_nan_is_kept(tmp_path: Path) -> None:
    result = At("post_eval_step_epoch", lambda eval_result: eval_result.update(loss=float("nan"), table=[1, 2]))
    tiny_manager(RunRecord(), result, train_dir=tmp_path).train()

    metrics = the_entry(tmp_path)["metrics"]
    assert sorted(metrics) == ["loss", "valid/loss"]
    assert metrics["valid/loss"] != metrics["valid/loss"]


def test_the_data_is_told_by_its_fingerprint(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    data = the_entry(tmp_path)["data"]

    assert (data["train_data"]["kind"], data["train_data"]["length"]) == ("list", 3)
    assert list(data["eval_data"]) == ["valid"]


def test_a_problem_of_each_call_is_told_once(tmp_path: Path) -> None:
    class Broken(Extension):
        @property
        def scheduler(self) -> Any:
            raise ValueError("no scheduler yet")

        def pre_run(self) -> None: ...

    tm = tiny_manager(RunRecord(), Broken(), train_dir=tmp_path, epochs=3)
    with pytest.warns(RuntimeWarning, match="lacks a part of this run"):
        tm.train()
    tm.train_epochs(1)
    assert the_entry(tmp_path)["problems"] == ["made: ValueError: no scheduler yet"]


def test_what_cannot_be_recorded_is_said_in_the_record_and_once_as_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_record, "command", fail)
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    told = "command: ZeroDivisionError: as planned"
    with pytest.warns(RuntimeWarning, match=f"^run-{tm.run_id}.json lacks a part of this run: {told}$"):
        tm.train()
    tm.eval()
    entry = the_entry(tmp_path)

    assert (entry["problems"], entry["command"]) == ([told], {})
    assert entry["environment"]["python"]


def test_an_entry_is_plain_json(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    written = json.loads(the_file(tmp_path).read_text())

    assert written == {"schema": "train-manager/run", "version": 1, **the_entry(tmp_path)}


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


# ---- what it costs ---------------------------------------------------------------------------------------------------


AUDITED = """
import sys, tempfile
from train_manager.extensions import RunRecord
from train_manager.testing import tiny_manager
tm = tiny_manager(RunRecord(), train_dir=tempfile.mkdtemp())
seen = []
STARTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "os.system", "os.forkpty")
sys.addaudithook(lambda event, args: event in (*STARTS, "socket.__new__") and seen.append(event))
tm.eval()
print(seen)
"""


def test_no_process_is_started_and_no_socket_opened(fork_server: ForkServer) -> None:
    done = fork_server.run(code, AUDITED)

    assert (done.output, done.errors) == ("[]\n", "")


def test_while_it_pauses_the_run_has_not_ended(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), train_dir=tmp_path)
    with tm.run():
        with tm.phase("other", without=["run_record"]):
            assert read_runs(tmp_path)[-1]["outcome"] == "running"
        assert read_runs(tmp_path)[-1]["outcome"] == "running"
    entry = read_runs(tmp_path)[-1]
    assert (entry["outcome"], entry["calls"]) == ("completed", {"run": 1})


# ---- what checks have found ------------------------------------------------------------------------------------------


def test_what_checks_have_found_is_recorded_also_in_a_phase_and_after_an_error(tmp_path: Path) -> None:
    found = Finding("batch leak", "note", "a norm mixes the examples", "body.norm", numbers={"examples": 16})
    find = At("post_train_step_batch", lambda train_manager: train_manager.add_finding(found))
    tm = tiny_manager(find, At("post_train_step_epoch", fail), RunRecord(), train_dir=tmp_path)
    with pytest.raises(ZeroDivisionError), tm.run(), tm.phase("head"):
        tm.train()
    entry = the_entry(tmp_path)

    assert (entry["outcome"], entry["findings"]) == ("failed", [found.to_dict()])


def test_a_run_without_findings_has_no_word_of_them(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()

    assert "findings" not in the_entry(tmp_path)


# ---- variables -------------------------------------------------------------------------------------------------------


def test_variables_that_are_asked_for_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LR": "0.1", "APP_SIZE": "3", "OTHER": "1"}.items():
        monkeypatch.setenv(name, value)
    tiny_manager(RunRecord(variables=["LR", "APP_*"]), train_dir=tmp_path).train()
    environment = the_entry(tmp_path)["environment"]

    assert {"LR", "APP_SIZE", "OTHER"} & {*environment["variables"]} == {"LR", "APP_SIZE"}
    assert environment["patterns"] == ["LR", "APP_*"]


@pytest.mark.parametrize("variables", [3, [3], [""], {"LR": 1}])
def test_what_is_no_name_of_a_variable_is_refused(variables: Any) -> None:
    with pytest.raises(InputError) as refused:
        RunRecord(variables=variables)

    assert str(refused.value) == (
        f"variables must be names of environment variables, but is {variables!r}\n"
        '  give a list: variables=["LR", "APP_*"]'
    )
