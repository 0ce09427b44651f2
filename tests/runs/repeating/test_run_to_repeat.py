from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.runs.code.repositories import an_entry
from tests.support.refusals import refusal
from train_manager.errors import CheckpointError
from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.code.record import VERSION
from train_manager.runs.record.run_file import read_runs, run_file
from train_manager.runs.repeating.run_to_repeat import run_to_repeat
from train_manager.testing import tiny_manager


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings and an evaluation."""
    folder = tmp_path_factory.mktemp("runs") / "tiny#1"
    for _ in range(2):
        tiny_manager(RunRecord(), MetricStore(), train_dir=folder).train()
    tiny_manager(RunRecord(), MetricStore(), train_dir=folder).eval()
    return folder


def test_the_run_that_trained_last_is_taken(train_dir: Path) -> None:
    assert run_to_repeat(train_dir).entry["id"] == read_runs(train_dir)[1]["id"]


def test_another_one_is_chosen_by_the_beginning_of_its_id(train_dir: Path) -> None:
    first = read_runs(train_dir)[0]["id"]

    assert run_to_repeat(f"{train_dir}#{first[:8]}").entry["id"] == first


def test_a_run_that_only_evaluated_is_refused(train_dir: Path) -> None:
    last = read_runs(train_dir)[-1]["id"]

    assert (
        refusal(lambda: run_to_repeat(f"{train_dir}#{last}"))
        == f"run {last} has not trained\n  there is nothing to compare; give a run that has trained"
    )


def test_the_repository_is_that_of_the_program_and_not_a_submodule(train_dir: Path) -> None:
    code = train_dir / "code" / f"{run_to_repeat(train_dir).entry['id']}.json"
    code.parent.mkdir(exist_ok=True)
    (code.parent / "1.py").touch()
    repositories = [an_entry(path="/r/vendor", inside="vendor"), an_entry()]
    code.write_text(
        json.dumps(
            {
                "schema": "train-manager/code",
                "version": VERSION,
                "repositories": repositories,
                "notebook": {"cells": 2, "file": "code/1.py"},
            }
        )
    )

    run = run_to_repeat(train_dir)

    assert (run.repository, run.notebook) == (Path("/r"), train_dir / "code/1.py")


def test_a_record_of_this_user_and_this_machine_is_not_asked_about(train_dir: Path) -> None:
    assert run_to_repeat(train_dir).reason_to_ask is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users with numbers")
def test_a_record_of_another_user_is_asked_about(train_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, user = run_to_repeat(train_dir), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)

    assert run.reason_to_ask == f"{run_file(train_dir, run.entry['id'])} belongs to another user"


OUTSIDE = ["../notebook.py", "/etc/hostname", "code/../../notebook.py", "code/link.py", "code/a.py"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_notebook_outside_of_its_record_is_refused(train_dir: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(train_dir, tmp_path / "run", ignore=shutil.ignore_patterns("code"))
    run = run_to_repeat(copy).entry["id"]
    notebook = {"cells": 1, "file": name}
    record = {"schema": "train-manager/code", "version": VERSION, "repositories": [], "notebook": notebook}
    (copy / "code").mkdir()
    (copy / "code" / f"{run}.json").write_text(json.dumps(record))
    (tmp_path / "notebook.py").touch()
    (copy / "code/link.py").symlink_to("../../notebook.py")

    with pytest.raises(CheckpointError) as caught:
        _ = run_to_repeat(copy).notebook

    assert str(caught.value) == f"the cells of run {run} are not in its record: there is no file {name!r} in its code/"
