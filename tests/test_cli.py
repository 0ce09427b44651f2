from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

from train_manager import __version__, cli
from train_manager.extensions import Checkpoints, CodeRecord, MetricStore, RunRecord
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
for command in ("show", "check", "runs"):
    assert main([command, sys.argv[1]]) == 0
assert main(["compare", sys.argv[1], sys.argv[1], "--html", sys.argv[1] + "/page.html"]) == 0
"""


def in_a_process(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=cwd, check=False)


def test_torch_is_not_imported_to_look_at_checkpoints_and_runs(tmp_path: Path) -> None:
    records = [RunRecord(), CodeRecord(), MetricStore()]
    tiny_manager(Checkpoints(), *records, epochs=1, train_dir=tmp_path / "digits").train()

    done = in_a_process("-c", WITHOUT_TORCH, str(tmp_path / "digits"), cwd=ROOT)

    assert done.returncode == 0, done.stderr


def test_the_package_brings_the_command() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    assert setup["options.entry_points"]["console_scripts"].split() == ["train-manager", "=", "train_manager.cli:main"]
    assert callable(cli.main)


def test_the_module_is_the_command() -> None:
    done = in_a_process("-m", "train_manager", "--version", cwd=ROOT)

    assert (done.returncode, done.stdout) == (0, f"train-manager {__version__}\n")
