from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import cli

TRAINING = """
import sys
from pathlib import Path
import helper
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

tm = tiny_manager(Checkpoints(save_at="end"), epochs=int(sys.argv[1]), train_dir="runs/digits")
tm.train()
assert tm.train_dir != Path("runs/digits")
tiny_manager(epochs=2, seed=1).train()
print("epochs", tm.epoch_num)
"""
RESUMING = """
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

tiny_manager(Checkpoints(resume=True), train_dir="runs/digits").train()
"""
FORGETFUL = """
from train_manager import Extension
from train_manager.testing import tiny_manager

class GrowingRate(Extension):
    def __init__(self):
        self.steps = 0

    def pre_train_step_batch(self):
        self.steps += 1

    def post_train_backward(self, optimizer):
        optimizer.param_groups[0]["lr"] = 0.1 * self.steps

tiny_manager(GrowingRate()).train()
"""
UNSEEDED = """
import sys
import numpy
from train_manager.testing import tiny_manager

tm = tiny_manager()
tm.optimizer.param_groups[0]["lr"] = numpy.random.random()
tm.train()
sys.exit()
"""


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder for scripts."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "helper.py").touch()  # scripts import what is beside them
    return folder


def test_a_script_that_nobody_prepared_is_verified(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (scripts / "train.py").write_text(TRAINING)
    runs = tmp_path / "all"
    monkeypatch.chdir(tmp_path)

    code = cli.main(["verify-resume", str(scripts / "train.py"), "--at", "2", "--folder", str(runs), "--", "1"])

    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "straight: train.py runs to its end",
        f"  output in {runs}/straight.log",
        "  6 steps in all",
        "killed-at-2: train.py saves a checkpoint after step 2 and is killed (kill -9)",
        f"  output in {runs}/killed-at-2.log",
        "resumed: train.py resumes after step 2 to its end",
        f"  output in {runs}/resumed.log",
        "  6 steps in all",
        "identical: killed after step 2 and resumed, the training comes to the same, to the bit",
        "note: train.py ran without Checkpoints(resume=True), which was added to resume; without it, it begins anew or "
        "is refused when it is started again",
    ]
    assert code == 0
    assert (runs / "resumed.log").read_text() == "epochs 1\n"


@pytest.mark.whole
def test_a_script_that_resumes_by_itself_gets_no_note(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = scripts / "train.py"
    script.write_text(RESUMING)

    assert cli.main(["verify-resume", str(script), "--at", "2", "--folder", str(scripts / "runs")]) == 0

    assert lines(capsys)[-1].startswith("identical: ")


def test_a_script_that_forgets_something_is_told_what(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = scripts / "train.py"
    script.write_text(FORGETFUL)

    assert cli.main(["verify-resume", str(script), "--at", "2", "--folder", str(scripts / "runs")]) == 1

    told = [line.partition(": ")[::2] for line in lines(capsys)]
    assert [text.split(":")[0] for word, text in told if word == "different"] == ["model > 0.weight"]
    cause = "after step 2, the state_dict of extension 'growing_rate' did not bring back"
    assert ("cause", f"{cause} steps: 2 in the killed run, 0 in the resumed run") in told


@pytest.mark.whole
def test_a_script_without_a_seed_differs_from_run_to_run_as_in_interpreters_of_its_own(
    scripts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = scripts / "train.py"
    script.write_text(UNSEEDED)

    assert cli.main(["verify-resume", str(script), "--at", "2", "--folder", str(scripts / "runs")]) == 1

    told = "cause: the training is not deterministic: two straight runs differ too. Does it lack a seed? "
    assert any(line.startswith(told) for line in lines(capsys))


def test_a_script_that_fails_ends_with_its_traceback(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, runs = scripts / "train.py", scripts / "runs"
    script.write_text("print('begun')\nraise ValueError('no data today')\n")

    assert cli.main(["verify-resume", str(script), "--folder", str(runs)]) == 2

    told = capsys.readouterr().err
    assert told.startswith(
        "train-manager: train.py failed in the run 'straight' (exit code 1); its output ended with:\n"
    )
    assert told.endswith(f"    ValueError: no data today\n  all of it is in {runs}/straight.log\n")


def test_a_script_without_a_training_is_told(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scripts / "train.py").touch()

    assert cli.main(["verify-resume", str(scripts / "train.py"), "--folder", str(scripts / "runs")]) == 2

    told = "train-manager: train.py made no TrainManager\n  is it the script that trains? its output is in the log\n"
    assert capsys.readouterr().err == told


def test_a_script_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"

    assert cli.main(["verify-resume", str(path)]) == 2

    assert capsys.readouterr().err == f"train-manager: there is no script {path}\n  give the path of a Python file\n"


def test_a_folder_with_other_files_is_refused(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (scripts / "train.py").touch()

    assert cli.main(["verify-resume", str(scripts / "train.py"), "--folder", str(scripts)]) == 2

    told = f"train-manager: {scripts} is not empty\n  give a folder that is empty or not there\n"
    assert capsys.readouterr().err == told
