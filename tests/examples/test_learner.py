"""The example ``examples/learner``: a learner of three files and a short script."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.programs import strictly

pytest.importorskip("sklearn")

FOLDER = Path(__file__).parents[2] / "examples" / "learner"
LINES = {"data.toml": 35, "model.toml": 25, "learner.toml": 10, "train.py": 20}


def trained(folder: Path, server: ForkServer, epochs: int | None = None) -> float:
    """Run a copy of the example, with other epochs; return the accuracy that its report has."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if epochs is not None:
        for name, number in (("learner.toml", "epochs = "), ("digits.py", "numEpochs = ")):
            text = (folder / name).read_text(encoding="utf-8")
            (folder / name).write_text(re.sub(f"{number}60", f"{number}{epochs}", text), encoding="utf-8")
    done = server.run(strictly, "script", "train.py", cwd=folder)

    assert done.errors == ""
    report = (folder / "deployed" / "report.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+\.pt) .* \| ([\d.]+) \|$", report, re.MULTILINE)
    assert [name for name, _ in rows] == ["model.pt", "low_rank.pt"]
    return float(rows[0][1])


@pytest.mark.parametrize("name", LINES)
def test_its_files_are_short(name: str) -> None:
    assert len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= LINES[name]


@pytest.mark.whole
@pytest.mark.slow
def test_two_epochs_of_each_kind_are_better_than_chance(tmp_path: Path, fork_server: ForkServer) -> None:
    assert trained(tmp_path / "learner", fork_server, epochs=2) > 0.2


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_69_labels_are_enough_for_four_of_five_digits(tmp_path: Path, fork_server: ForkServer) -> None:
    assert trained(tmp_path / "learner", fork_server) >= 0.8
