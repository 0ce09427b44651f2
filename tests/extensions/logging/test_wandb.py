"""W&B is handed what the store has, and its offline folder is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.store.sinks import OwnMetrics, Points, counting, kill_and_resume, needs_package
from tests.support.eventually import eventually
from train_manager.extensions import Checkpoints, MetricStore, WandB
from train_manager.telling.errors import InputError
from train_manager.testing import tiny_manager

needs_package()
pytestmark = [pytest.mark.sinks, pytest.mark.slow]

import wandb  # noqa: E402


class Run:
    """Keeps what is logged, in place of a run of W&B."""

    def __init__(self, **options: Any) -> None:
        self.options, self.logged, self.is_finished = options, list[dict[str, Any]](), False

    def define_metric(self, name: str, step_metric: str | None = None) -> None: ...

    def log(self, data: dict[str, Any]) -> None:
        assert not self.is_finished
        self.logged.append(data)

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    made: list[Run] = []
    monkeypatch.setattr(wandb, "init", lambda **options: made.append(Run(**options)) or made[-1])  # type: ignore[func-returns-value]
    return made


def handed(runs: list[Run]) -> Points:
    found: Points = {}
    for data in (data for run in runs for data in run.logged):
        for tag, value in data.items():
            if tag != "step" and isinstance(value, float):
                found.setdefault(tag, []).append((data["step"], value))
    return {tag: sorted(points) for tag, points in found.items()}


def train(folder: Path, epochs: int = 2, resume: Any = "fresh") -> str:
    extensions = [MetricStore(), WandB(), Checkpoints(resume=resume), OwnMetrics()]
    tm = tiny_manager(*extensions, epochs=epochs, train_dir=folder)
    tm.train()
    return tm.run_id


def test_it_is_handed_every_number_that_counts(tmp_path: Path, runs: list[Run]) -> None:
    train(tmp_path)

    assert handed(runs) == counting(tmp_path)
    assert all(run.is_finished for run in runs)


def test_it_is_handed_histograms_texts_and_pictures(tmp_path: Path, runs: list[Run]) -> None:
    train(tmp_path, epochs=1)
    found = {tag: value for run in runs for data in run.logged for tag, value in data.items()}

    assert found["note"] == "größer"
    assert found["weights"].histogram == [1, 2]
    assert type(found["picture"]) is wandb.Image


def test_a_resume_is_a_run_of_its_own(tmp_path: Path, runs: list[Run]) -> None:
    ids = [train(tmp_path, epochs=2), train(tmp_path, epochs=3, resume=True)]

    assert [run.options["id"] for run in runs] == ids
    assert handed(runs) == counting(tmp_path)


def test_an_export_is_a_run_of_another_name_with_all_that_counts(tmp_path: Path, runs: list[Run]) -> None:
    train(tmp_path, epochs=2)
    last = train(tmp_path, epochs=3, resume=True)
    WandB(project="digits").export(tmp_path)
    of_export = runs[-1]

    assert (of_export.options["id"], of_export.options["project"]) == (f"{last}-export", "digits")
    assert handed([of_export]) == counting(tmp_path)
    assert of_export.is_finished


def test_online_a_second_training_goes_on_with_the_run(tmp_path: Path, runs: list[Run]) -> None:
    tm = tiny_manager(MetricStore(), WandB(mode="online"), train_dir=tmp_path)
    tm.train()
    tm.train_epochs(1)

    assert [(run.options["id"], run.options["resume"]) for run in runs] == [(tm.run_id, "allow")] * 2
    assert handed(runs) == counting(tmp_path)


def test_offline_it_writes_a_folder_of_its_own(tmp_path: Path) -> None:
    train(tmp_path)
    [file] = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")

    eventually(lambda: b"eval/valid/loss" in file.read_bytes())  # a process of W&B writes it


def test_after_a_kill_and_a_resume_there_is_a_folder_of_each(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "WandB")

    assert len([*(tmp_path / "wandb").glob("offline-run-*/run-*.wandb")]) == 2


def test_a_mode_that_is_neither_is_refused() -> None:
    with pytest.raises(InputError, match="mode must be 'offline' or 'online'"):
        WandB(mode="nowhere")
