from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.record.sample_runs import entry, write_runs
from tests.support.refusals import refusal
from train_manager.runs.record.run_paths import DEEPEST, folders_with_runs, named_run
from train_manager.telling.errors import CheckpointError, InputError

EVALUATION: dict[str, Any] = {"progress": {"epochs": 2, "steps": 20}, "goes_on_from": {"step": 20, "run": "aaaa1"}}


def test_a_folder_means_its_last_run_that_trained(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa1"), entry("bbbb2"), entry("cccc3", **EVALUATION))

    assert named_run(tmp_path).id == "bbbb2"


def test_a_run_that_is_under_way_has_trained(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa1"), entry("bbbb2", outcome="running", ended=None, progress={}))

    assert named_run(tmp_path).id == "bbbb2"


def test_a_folder_may_have_a_hash_in_its_name(tmp_path: Path) -> None:
    write_runs(tmp_path / "sweep#7", entry("aaaa1"), entry("bbbb2"))

    assert named_run(tmp_path / "sweep#7").id == "bbbb2"
    assert named_run(f"{tmp_path}/sweep#7#aaaa").id == "aaaa1"


def test_a_label_has_as_much_of_the_id_as_tells_runs_apart(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("abcdef01"), entry("abcdef02"))

    assert named_run(tmp_path).label == f"{tmp_path}#abcdef02"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none", "there is no folder {path}/none\n  give its train_dir: {path}"),
        ("run-abcd1.json", "{path}/run-abcd1.json is a file\n  give its train_dir: {path}"),
        ("checkpoints/step-1", "{path}/checkpoints/step-1 is not a train_dir\n  give its train_dir: {path}"),
        ("../none", "there is no folder {path}/../none\n  give the train_dir of a training"),
        ("../run", "there is no folder {path}/../run\n  did you mean '{path}'?"),
        ("..", "{path}/.. is not a train_dir\n  give a train_dir below it: {path}"),
        ("#zz", "{path} has no run 'zz'\n  its runs are abcd1, abcd2"),
        ("#ab", "2 runs of {path} begin with 'ab'\n  they are abcd1, abcd2"),
    ],
)
def test_a_run_that_is_not_there_is_told(name: str, told: str, tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs", entry("abcd1"), entry("abcd2"))
    (path / "checkpoints" / "step-1").mkdir(parents=True)
    given = f"{path}{name}" if name.startswith("#") else path / name

    assert refusal(lambda: named_run(given)) == told.format(path=path)


def test_runs_are_found_below_a_folder_but_not_in_what_they_write(tmp_path: Path) -> None:
    for name in ("b", "a/nested", "a/checkpoints/x", "a/code/x", ".hidden", "/".join("d" * (DEEPEST + 1))):
        write_runs(tmp_path / name, entry())
    (tmp_path / "link").symlink_to(tmp_path / "b")

    assert [*folders_with_runs(tmp_path)] == [tmp_path / "a" / "nested", tmp_path / "b"]


def test_a_damaged_run_is_named_if_it_is_asked_for_and_left_out_otherwise(tmp_path: Path) -> None:
    write_runs(tmp_path, entry("aaaa1"), entry("bbbb2", progress=3))
    told = f"{tmp_path}/run-bbbb2.json is damaged: it has 3 at progress, where an object belongs"

    with pytest.raises(CheckpointError) as caught:
        named_run(f"{tmp_path}#bbbb")
    with pytest.warns(RuntimeWarning, match=f"^left out: {told}$"):
        found = named_run(tmp_path)

    assert str(caught.value) == told
    assert found.id == "aaaa1"


def test_a_run_json_of_another_program_makes_no_folder_of_runs(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")

    assert [*folders_with_runs(tmp_path)] == []
    with pytest.raises(InputError, match=r"^no run was recorded in "):
        named_run(tmp_path)
