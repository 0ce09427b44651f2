"""What a RunRecord holds, and what it costs."""

from __future__ import annotations

import json
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
from tests.support.training import At
from train_manager import Extension, InputError, recorded
from train_manager.extensions import LRSchedule, RunRecord
from train_manager.extensions.reproducibility import run_record
from train_manager.rebuilding.recorded_rows import expression
from train_manager.runs.record.run_file import read_runs
from train_manager.telling.findings import Finding
from train_manager.testing import tiny_manager

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
