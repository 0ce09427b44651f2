from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.runs.code.repositories import an_entry
from train_manager import CheckpointError, InputError
from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.code.record import VERSION
from train_manager.runs.record.run_file import read_runs
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

    with pytest.raises(InputError) as refused:
        run_to_repeat(f"{train_dir}#{last}")

    assert str(refused.value) == (
        f"run {last} has not trained\n  there is nothing to compare; give a run that has trained"
    )


def test_a_run_without_a_code_record_has_neither_repository_nor_notebook(train_dir: Path) -> None:
    run = run_to_repeat(train_dir)

    assert (run.code, run.repository, run.notebook) == (None, None, None)


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


WRONG = {
    "id": ("../../x", "a name"),
    "began": ("yesterday", "a time with its zone"),
    "ended": ("2026-05-01T12:00:00", "a time with its zone"),
    "goes_on_from": ([], "an object"),
    "goes_on_from.step": ("7", "a whole number"),
    "command": ("train.py", "an object"),
    "command.arguments": (["python", 3], "a list of texts"),
    "command.folder": (3, "a text"),
    "command.search_path": ({}, "a list of texts"),
    "environment.variables": ({"OMP_NUM_THREADS": 1}, "an object of texts"),
    "progress.steps": (True, "a whole number"),
}


@pytest.mark.parametrize("place", WRONG)
def test_a_value_of_a_wrong_type_is_told_in_words(train_dir: Path, tmp_path: Path, place: str) -> None:
    copy = shutil.copytree(train_dir, tmp_path / "run")
    found = json.loads((copy / "run.json").read_text())
    *outer, last = place.split(".")
    part = found["runs"][1]
    for name in outer:
        part[name] = part = part[name] or {}
    part[last], word = WRONG[place]
    (copy / "run.json").write_text(json.dumps(found))

    with pytest.raises(CheckpointError) as caught:
        run_to_repeat(f"{copy}#{found['runs'][1]['id']}")

    run, value = found["runs"][1]["id"], WRONG[place][0]
    assert str(caught.value) == f"{copy}/run.json is damaged: run {run} has {value!r} at {place}, where {word} belongs"


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
