"""The rows on records of runs: T18-T20, J17 (what a report is made of), J28."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from tests.rebuilding.recorded_parts import Head, Net
from tests.runs.code.repositories import git, repository
from train_manager import Extension, InputError
from train_manager.extensions import CodeRecord, ConfusionMatrix, Metrics, MetricStore, PredictionGallery, RunRecord
from train_manager.extensions.reproducibility import code_record
from train_manager.testing import tiny_manager
from train_manager.tools import read_run, write_report


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A repository with one commit."""
    files = {"train.py": b"print('first')\n", "table.bin": bytes(range(256)), "old.txt": b"old\n"}
    return repository(tmp_path / "repository", files)


def commit_of(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD").decode().strip()


def trained_in(folder: Path, train_dir: Path) -> dict[str, Any]:
    """Train with the code of a folder, and return the record of the code."""
    tm = tiny_manager(CodeRecord(folder=folder), train_dir=train_dir)
    tm.train()
    record: dict[str, Any] = json.loads((train_dir / "code" / f"{tm.run_id}.json").read_text())
    return record


def files_of(root: Path) -> dict[str, tuple[bytes, bool]]:
    """The content of each file of a working tree, and whether it may be executed."""
    paths = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.relative_to(root).parts]
    return {str(path.relative_to(root)): (path.read_bytes(), os.access(path, os.X_OK)) for path in paths}


# ---- T: the commit, what differs from it, and what objects were made with --------------------------------------------


def test_t18_the_commit_is_stored(code: Path, tmp_path: Path) -> None:
    (entry,) = trained_in(code, tmp_path / "run")["repositories"]

    assert entry["commit"] == commit_of(code)
    assert entry["branch"] == "main"


def test_t18_outside_of_a_repository_that_is_said_and_the_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_record, "_warned", set())  # else it is said once in a process, perhaps in another test
    folder = tmp_path / "plain"
    folder.mkdir()
    tm = tiny_manager(CodeRecord(folder=folder), train_dir=tmp_path / "run")
    with pytest.warns(UserWarning, match="not in a git repository"):
        result = tm.train()
    record = json.loads((tmp_path / "run" / "code" / f"{tm.run_id}.json").read_text())

    assert result.epochs == 1
    assert "not in a git repository" in record["reason"]


def test_t19_plain_git_restores_the_tree_of_the_record_byte_for_byte(code: Path, tmp_path: Path) -> None:
    (code / "train.py").write_bytes(b"print('second')\r\n\xff")
    (code / "table.bin").write_bytes(bytes(reversed(range(256))))
    (code / "old.txt").unlink()
    (code / "new file.txt").write_text("new\n")
    (code / "run.sh").write_text("exit\n")
    (code / "run.sh").chmod(0o755)
    (entry,) = trained_in(code, tmp_path / "run")["repositories"]

    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(code), str(copy))
    store = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tmp_path / "run/code/git/objects")}
    command = ["git", "-C", str(copy), "read-tree", "--reset", "-u", entry["tree"]]
    subprocess.run(command, check=True, env={**os.environ, **store})

    assert files_of(copy) == files_of(code)


def test_t20_a_run_keeps_what_its_objects_were_made_with(tmp_path: Path) -> None:
    tiny_manager(
        RunRecord(),
        model=Net(8, head=Head(3)),
        optimizer=partial(torch.optim.AdamW, lr=0.05),
        lr_schedule=partial(StepLR, step_size=2),
        train_dir=tmp_path,
    ).train()
    (entry,) = (json.loads(path.read_text()) for path in tmp_path.glob("run-*.json"))
    parts = entry["parameters"]["arguments"]

    assert parts["model"]["arguments"]["width"] == 8
    assert parts["model"]["arguments"]["head"]["arguments"] == {"classes": 3, "bias": True}
    assert parts["optimizer"]["arguments"] == {"lr": 0.05}
    assert parts["lr_schedule"]["arguments"] == {"step_size": 2}


# ---- J: what a report is made of, and progress in a file -------------------------------------------------------------


def test_j17_commit_data_metrics_and_outcome_are_read_from_the_folder_alone(code: Path, tmp_path: Path) -> None:
    tm = tiny_manager(CodeRecord(folder=code), RunRecord(), MetricStore(), epochs=2, train_dir=tmp_path / "run")
    tm.train()
    found = read_run(tmp_path / "run")
    (entry,) = found.entries

    assert found.code(entry["id"])["repositories"][0]["commit"] == commit_of(code)
    assert entry["outcome"] == "completed"
    assert entry["data"]["train_data"]
    assert list(entry["data"]["eval_data"]) == ["valid"]
    assert entry["metrics"]["valid/loss"] == tm.history.evaluations[-1]["loss"]
    assert [row["loss"] for row in found.history.epochs] == [row["loss"] for row in tm.history.epochs]


def test_j17_a_report_has_the_data_the_metrics_each_class_hard_examples_and_the_commit(
    code: Path, tmp_path: Path
) -> None:
    watchers: list[Extension] = [
        ConfusionMatrix(["below", "above"]),
        PredictionGallery(["below", "above"]),
        Metrics(accuracy=accuracy),
    ]
    records: list[Extension] = [CodeRecord(folder=code), RunRecord(), MetricStore()]
    tiny_manager(*records, *watchers, epochs=2, train_dir=tmp_path / "run").train()
    page = write_report(tmp_path / "run", tmp_path / "report.html").read_text(encoding="utf-8")

    for part in ("train_data", "accuracy", "below", "gallery", commit_of(code)[:7]):
        assert part in page


def accuracy(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return prediction.argmax(dim=1) == targets


class Reads(Extension):
    """Waits in the fourth step until a reader of the file sees the loss of the third."""

    seen: tuple[int, ...] = ()

    def post_train_step_batch(self, step_num: int, train_dir: Path) -> None:
        end = time.monotonic() + 30
        while step_num == 4 and 3 not in self.seen and time.monotonic() < end:
            with contextlib.suppress(InputError):  # the file is not there before its first rows are
                losses = read_run(train_dir).metrics.scalars("loss", "train_step_batch")
                self.seen = tuple(step for found in losses.values() for step in found.steps)


def test_j28_progress_is_in_a_file_while_the_training_runs(tmp_path: Path) -> None:
    reads = Reads()
    tiny_manager(MetricStore(), reads, epochs=2, train_dir=tmp_path).train()

    assert reads.seen[:3] == (1, 2, 3)
