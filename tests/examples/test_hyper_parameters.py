"""The example ``examples/hyper_parameters.py``, and the page that shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from examples import hyper_parameters as example
from tests.examples.comparison import ROOT
from tests.support.fork_server import ForkServer
from tests.support.programs import script
from train_manager.tools import compare_runs

EXAMPLE = ROOT / "examples" / "hyper_parameters.py"
PAGE = (ROOT / "docs" / "how-to" / "hyper-parameters.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example() -> None:
    assert f"```python\n# hyper_parameters.py\n{EXAMPLE.read_text(encoding='utf-8')}```\n" in PAGE


def test_two_runs_differ_in_the_options_that_were_given(tmp_path: Path) -> None:
    example.main(["--train-dir", str(tmp_path / "slow")])
    example.main(["--train-dir", str(tmp_path / "fast"), "--lr", "0.5", "--width", "8"])
    compared = compare_runs([tmp_path / "slow", tmp_path / "fast"]).parameters

    assert {name: compared[name] for name in ("optimizer.lr", "model.width")} == {
        "optimizer.lr": ("0.1", "0.5"),
        "model.width": ("16", "8"),
    }


def test_the_command_line_overrides_what_a_checkpoint_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(tmp_path / "one"), str(tmp_path / "other")]
    example.main(["--epochs", "1", "--train-dir", folders[0]])
    example.main(["--checkpoint", folders[0], "--override", "optimizer.lr=1.0", "epochs=3", "--train-dir", folders[1]])

    assert capsys.readouterr().out.splitlines()[-1].startswith("TrainResult(2 epochs, 20 steps, ")
    assert compare_runs(folders).parameters["optimizer.lr"] == ("0.1", "1.0")


def test_hydra_sweeps_over_the_same_dataclass(tmp_path: Path, fork_server: ForkServer) -> None:
    pytest.importorskip("hydra")
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "sweep.py").write_text(PAGE.partition("```py\n")[2].partition("```\n")[0], encoding="utf-8")
    sweep = "--multirun", "lr=0.1,0.5", "hydra.sweep.dir=found", "epochs=1"
    done = fork_server.run(script, "sweep.py", *sweep, cwd=tmp_path)
    found = [tmp_path / "found" / run for run in "01"]

    assert "Launching 2 jobs" in done.output
    assert compare_runs(found).parameters["optimizer.lr"] == ("0.1", "0.5")
