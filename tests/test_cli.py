from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import torch

from train_manager import __version__, cli
from train_manager.extensions import EMA, Checkpoints
from train_manager.records.checkpoint import write_checkpoint
from train_manager.testing import tiny_manager

ROOT = Path(__file__).parents[1]
WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise AssertionError("torch was imported")

sys.meta_path.insert(0, NoTorch())
from train_manager.cli import main
for arguments in (["show", sys.argv[1]], ["check", sys.argv[1]]):
    assert main(arguments) == 0
"""
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A train_dir with the checkpoints of the steps 3 and 6."""
    train_dir = tmp_path_factory.mktemp("trained") / "digits"
    momentum = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.25, momentum=0.9)}
    tiny_manager(Checkpoints(), EMA(), epochs=2, train_dir=train_dir, seed=0, **momentum).train()
    return train_dir


@pytest.fixture
def train_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copytree(trained, tmp_path / "digits")


def checkpoint(train_dir: Path, step: int) -> Path:
    return train_dir / "checkpoints" / f"step-{step:012d}"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def in_a_process(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder for scripts."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "helper.py").touch()  # scripts import what is beside them
    return folder


# ---- show ----------------------------------------------------------------------------------------------------------


def test_the_newest_checkpoint_of_a_train_dir_is_shown(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(trained)]) == 0

    first, *rest = lines(capsys)
    assert first == f"{checkpoint(trained, 6)} (the newest of 2)"
    shown = "\n".join(rest)
    for line in [
        "step        6",
        "epoch       2",
        "counts      step_num 6, update_num 6, samples_seen 80, optimizer_updates (1)",
        "history     epochs (2), evaluations (3)",
        "random      python, numpy, torch",
        "optimizer   optimizer: lr 0.25; 4 parameters, 4 tensors of state",
        "extension   ema: updates 6, average (4 tensors), name , others (none)",
        "model       4 tensors, 42 numbers",
        "  0.weight  8x2  F32",
    ]:
        assert f"\n{line}\n" in f"\n{shown}\n"
    assert re.search(r"^monitored   0\.\d+$", shown, re.MULTILINE)
    assert f"train_manager {__version__}" in shown


@pytest.mark.parametrize("which", ["checkpoints/step-000000000003", "checkpoints"])
def test_a_checkpoint_or_the_folder_of_them_is_shown(
    which: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", str(trained / which)]) == 0

    assert lines(capsys)[0].startswith(str(trained / which))


def test_a_file_of_tensors_is_shown(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = checkpoint(trained, 6) / "model.safetensors"

    assert cli.main(["show", str(file)]) == 0

    assert lines(capsys)[:3] == [str(file), "tensors     4 tensors, 42 numbers", "  0.bias    8    F32"]


def test_more_than_30_tensors_are_shown_when_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path, "many", {"model": {f"{n:03}": torch.ones(1) for n in range(40)}}, {})

    cli.main(["show", str(path)])
    assert lines(capsys)[-2:] == ["  029  1  F32", "  and 10 more (--all shows them)"]

    cli.main(["show", "--all", str(path)])
    assert lines(capsys)[-1] == "  039  1  F32"


def test_of_a_damaged_checkpoint_the_manifest_is_shown(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint(train_dir, 6) / "model.safetensors").write_bytes(b"short")

    assert cli.main(["show", str(train_dir)]) == 1

    shown = lines(capsys)
    assert "step        6" in shown
    assert re.fullmatch(r"DAMAGED     model\.safetensors has 5 of \d+ bytes", shown[-1])


def test_a_damaged_file_of_tensors_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"no tensors at all")

    assert cli.main(["show", str(file)]) == 1

    assert lines(capsys) == [str(file), "DAMAGED     it is not a safetensors file, or is cut off"]


def test_recorded_parameters_are_shown_as_python_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = {"object": "nets:Net", "arguments": {"width": 8}}
    parameters = {"object": "train_manager:TrainManager", "arguments": {"model": net, "epochs": 3, "seed": None}}
    path = write_checkpoint(tmp_path, "recorded", {"parameters": parameters}, {})

    cli.main(["show", str(path)])

    assert [line for line in lines(capsys) if line.startswith("parameter ")] == [
        "parameter   model = Net(width=8)",
        "parameter   epochs = 3",
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", "there is nothing at {path}"),
        ("", "there is no checkpoint in {path}\n  {cure}"),
        ("notes.txt", "{path} is neither a checkpoint nor a .safetensors file\n  {cure}"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    path = tmp_path / name

    assert cli.main(["show", str(path)]) == 2

    cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
    assert capsys.readouterr().err == f"train-manager: {told.format(path=path, cure=cure)}\n"


# ---- check ---------------------------------------------------------------------------------------------------------


def test_each_checkpoint_of_a_training_is_checked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(trained)]) == 0

    assert lines(capsys) == ["step-000000000003  sound", "step-000000000006  sound"]


def test_one_checkpoint_is_checked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(checkpoint(trained, 3))]) == 0

    assert lines(capsys) == ["step-000000000003  sound"]


def test_damage_is_named_and_nothing_is_renamed(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = checkpoint(train_dir, 3) / "state.json"
    file.write_bytes(file.read_bytes().replace(b"epoch", b"epocH", 1))
    before = sorted(train_dir.rglob("*"))

    assert cli.main(["check", str(train_dir)]) == 1

    assert lines(capsys) == [
        "step-000000000003  damaged: state.json has changed since it was written (its SHA-256 differs)",
        "step-000000000006  sound",
    ]
    assert sorted(train_dir.rglob("*")) == before


def test_what_was_left_over_or_set_aside_is_named(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (".tmp-step-000000000009-123", ".del-step-000000000001", "damaged-step-000000000002", "superseded"):
        (train_dir / "checkpoints" / name).mkdir()

    assert cli.main(["check", str(train_dir)]) == 0

    assert lines(capsys)[2:] == [
        ".del-step-000000000001  left half-deleted by a killed process; the next training removes it",
        ".tmp-step-000000000009-123  left half-written by a killed process; the next training removes it",
        "damaged-step-000000000002  set aside, because it is damaged",
        "superseded  set aside, because a training went on from an earlier checkpoint",
    ]


# ---- the program ---------------------------------------------------------------------------------------------------


def test_torch_is_not_imported_to_show_and_check(trained: Path) -> None:
    done = in_a_process("-c", WITHOUT_TORCH, str(trained), cwd=ROOT)

    assert done.returncode == 0, done.stderr


def test_the_package_brings_the_command() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    assert setup["options.entry_points"]["console_scripts"].split() == ["train-manager", "=", "train_manager.cli:main"]
    assert callable(cli.main)


def test_the_module_is_the_command() -> None:
    done = in_a_process("-m", "train_manager", "--version", cwd=ROOT)

    assert (done.returncode, done.stdout) == (0, f"train-manager {__version__}\n")


# ---- verify-resume -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_script_that_nobody_prepared_is_verified(scripts: Path, tmp_path: Path) -> None:
    (scripts / "train.py").write_text(TRAINING)
    runs = tmp_path / "all"

    done = in_a_process(
        *("-m", "train_manager", "verify-resume", str(scripts / "train.py"), "--at", "2", "--folder", str(runs)),
        *("--", "1"),
        cwd=tmp_path,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "straight: train.py runs to its end",
        f"  output in {runs}/straight.log",
        "  6 steps in all",
        "killed-at-2: train.py saves a checkpoint after step 2 and is killed (kill -9)",
        f"  output in {runs}/killed-at-2.log",
        "resumed: train.py goes on after step 2 to its end",
        f"  output in {runs}/resumed.log",
        "  6 steps in all",
        "identical: killed after step 2 and resumed, the training comes to the same, to the bit",
    ]
    assert done.returncode == 0
    assert (runs / "resumed.log").read_text() == "epochs 1\n"


@pytest.mark.slow
def test_a_script_that_forgets_something_is_told_what(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = scripts / "train.py"
    script.write_text(FORGETFUL)

    assert cli.main(["verify-resume", str(script), "--at", "2", "--folder", str(scripts / "runs")]) == 1

    told = [line.partition(": ")[::2] for line in lines(capsys)]
    assert [text.split(":")[0] for word, text in told if word == "different"] == ["model > 0.weight"]
    cause = "after step 2, the state_dict of extension 'growing_rate' did not bring back"
    assert ("cause", f"{cause} steps: 2 in the killed run, 0 in the resumed run") in told


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
