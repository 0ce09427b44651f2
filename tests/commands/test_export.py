from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import train_manager.extensions
from tests.runs.store.sinks import Keeps, counting, points_of
from train_manager import cli
from train_manager.extensions import MetricStore
from train_manager.testing import tiny_manager


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Keeps:
    """The sink in place of TensorBoard."""
    found = Keeps()
    monkeypatch.setattr(train_manager.extensions, "TensorBoard", lambda: found, raising=False)
    return found


def train(folder: Path) -> str:
    tm = tiny_manager(MetricStore(), train_dir=folder)
    tm.train()
    return tm.run_id


def test_it_sends_the_metrics_of_a_run_that_has_ended(
    tmp_path: Path, kept: Keeps, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path)

    assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 0
    assert points_of(kept.rows) == counting(tmp_path)
    assert capsys.readouterr().out == f"{len(kept.rows)} metrics sent to tensorboard\n"


def test_a_tool_may_be_called_as_its_extension_is(tmp_path: Path, kept: Keeps) -> None:
    train(tmp_path)

    assert cli.main(["export", str(tmp_path), "--to", "TensorBoard"]) == 0
    assert points_of(kept.rows) == counting(tmp_path)


def test_it_sends_the_newest_run_of_several_or_the_one_that_is_named(tmp_path: Path, kept: Keeps) -> None:
    first, newest = train(tmp_path), train(tmp_path)

    assert cli.main(["export", str(tmp_path), "--to", "tensorboard", "--run", first[:6]]) == 0
    assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 0
    assert [sent.part.run for sent in kept.sent] == [first, newest]


def test_arguments_of_the_extension_are_given_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, str]] = []
    monkeypatch.setattr(train_manager.extensions, "WandB", lambda **given: made.append(given) or Keeps(), raising=False)  # type: ignore[func-returns-value]
    train(tmp_path)
    arguments = ["--with", "project=digits", "--with", "mode=online"]

    assert cli.main(["export", str(tmp_path), "--to", "wandb", *arguments]) == 0
    assert made == [{"project": "digits", "mode": "online"}]


def test_an_argument_that_the_extension_lacks_is_refused_with_a_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", str(tmp_path), "--to", "wandb", "--with", "projct=digits"]) == 2
    assert "did you mean 'project'?" in capsys.readouterr().err


def test_an_argument_without_a_value_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["export", str(tmp_path), "--to", "wandb", "--with", "project"])

    assert "'project' has no value: write project=..." in capsys.readouterr().err


TORCHLESS = """
import sys
from train_manager import cli
from train_manager.extensions import MLflow, WandB

try:
    cli.main(["export", sys.argv[1], "--to", "mlflow"])
finally:
    assert "torch" not in sys.modules
"""


def test_finding_an_extension_needs_no_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TORCHLESS, tmp_path], check=True, timeout=90)


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, kept: Keeps, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path)
    monkeypatch.setattr(Keeps, "package", "no_such_package")

    assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 2
    assert 'pip install "train-manager[kept]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("tensorbord", "did you mean 'tensorboard'?"),
        ("ML-Flow", "did you mean 'mlflow'?"),
        ("aim", "choose from tensorboard, mlflow, wandb"),
    ],
)
def test_a_tool_that_is_not_known_is_refused_with_a_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, cure: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", str(tmp_path), "--to", name])

    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"argument --to: there is no tool '{name}': {cure}\n")
