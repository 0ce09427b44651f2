from __future__ import annotations

from pathlib import Path

import pytest

import train_manager.extensions
from tests.runs.sending.sinks import Keeps, counting, points_of
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


def test_a_second_export_sends_nothing(tmp_path: Path, kept: Keeps, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path)
    for _ in range(2):
        assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 0

    assert capsys.readouterr().out.splitlines()[1] == "tensorboard has all metrics already"
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_tool_may_be_called_as_its_extension_is(tmp_path: Path, kept: Keeps) -> None:
    train(tmp_path)

    assert cli.main(["export", str(tmp_path), "--to", "TensorBoard"]) == 0
    assert points_of(kept.rows) == counting(tmp_path)


def test_it_sends_one_run_of_several(tmp_path: Path, kept: Keeps) -> None:
    first = tiny_manager(MetricStore(), train_dir=tmp_path)
    first.train()
    second = tiny_manager(MetricStore(), train_dir=tmp_path)
    second.load_state_dict(first.state_dict())
    second.train_epochs(1)

    assert cli.main(["export", str(tmp_path), "--to", "tensorboard", "--run", first.run_id[:6]]) == 0
    assert {row.run for row in kept.rows} == {first.run_id}
    assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 0
    assert points_of(kept.rows) == counting(tmp_path)


def test_a_folder_without_metrics_is_refused(tmp_path: Path, kept: Keeps, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path), "--to", "tensorboard"]) == 2
    assert f"{tmp_path} has no metrics" in capsys.readouterr().err


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
