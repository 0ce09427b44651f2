from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal
from train_manager import InputError
from train_manager.runs.repeating.paths import Moved
from train_manager.runs.repeating.repeated_command import repeated_command


def entry(*arguments: str, kind: str = "script", folder: Path | str = "/lab", **parts: Any) -> dict[str, Any]:
    command = {"kind": kind, "arguments": ["/old/python", *arguments], "folder": str(folder)}
    command["search_path"] = parts.pop("search_path", [])
    return {"command": command, "environment": parts}


def test_the_command_runs_with_this_interpreter_in_the_folder_of_then(tmp_path: Path) -> None:
    found = repeated_command(entry("-X", "dev", "train.py", "--lr", "1"), tmp_path, present={"HOME": "/home/me"})

    assert found.arguments == (sys.executable, "-X", "dev", "train.py", "--lr", "1")
    assert found.folder == Path("/lab")
    assert found.variables == {"HOME": "/home/me", "TRAIN_MANAGER_TRAIN_DIR": str(tmp_path)}
    assert found.notes == ()
    assert str(found) == f"{sys.executable} -X dev train.py --lr 1"


def test_all_paths_of_the_repository_are_those_of_its_copy(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (new / "src").mkdir(parents=True)
    run = entry(f"{old}/train.py", f"--data={old}/x", folder=old / "sub", search_path=[f"{old}/src", "/usr/lib"])

    found = repeated_command(run, tmp_path, Moved(old, new), present={"PYTHONPATH": "/mine"})

    assert found.arguments[1:] == (f"{new}/train.py", f"--data={new}/x")
    assert found.folder == new / "sub"
    assert found.variables["PYTHONPATH"] == f"{new}/src:/mine"


def test_a_package_that_is_installed_in_editable_form_is_found_in_the_copy(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (new / "src").mkdir(parents=True)

    found = repeated_command(entry("t.py", editable={"digits": str(old)}), tmp_path, Moved(old, new), present={})

    assert found.variables["PYTHONPATH"] == f"{new}/src:{new}"


def test_variables_that_bear_on_results_are_as_they_were(tmp_path: Path) -> None:
    run = entry("t.py", variables={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7", "SLURM_JOB_ID": "1"})

    found = repeated_command(run, tmp_path, present={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "4", "A": "b"})

    assert {name: found.variables.get(name) for name in ("OMP_NUM_THREADS", "PYTHONHASHSEED", "A")} == {
        "OMP_NUM_THREADS": "2",
        "PYTHONHASHSEED": "7",
        "A": "b",
    }
    assert {"MKL_NUM_THREADS", "SLURM_JOB_ID"}.isdisjoint(found.variables)
    assert found.notes == (
        "MKL_NUM_THREADS is unset, as it was then (here: 4)",
        "OMP_NUM_THREADS=2, as it was then (here: 1)",
        "PYTHONHASHSEED=7, as it was then (here: unset)",
    )


def test_variables_that_were_asked_for_are_as_they_were(tmp_path: Path) -> None:
    run = entry("t.py", variables={"LR": "0.1"}, patterns=["LR", "APP_*"])

    found = repeated_command(run, tmp_path, present={"LR": "0.2", "APP_SIZE": "3", "APP_TOKEN": "hidden"})

    assert found.variables["LR"] == "0.1"
    assert "APP_SIZE" not in found.variables
    assert found.variables["APP_TOKEN"] == "hidden"
    assert found.notes == (
        "APP_SIZE is unset, as it was then (here: 3)",
        "LR=0.1, as it was then (here: 0.2)",
    )


def test_a_machine_with_other_cpus_gets_the_threads_of_then(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))

    other = repeated_command(
        entry("t.py", devices={"usable_cpus": cpus + 1}, threads={"torch": 3}), tmp_path, present={}
    )
    same = repeated_command(entry("t.py", devices={"usable_cpus": cpus}, threads={"torch": 3}), tmp_path, present={})

    assert other.variables["OMP_NUM_THREADS"] == "3"
    assert other.notes == ("OMP_NUM_THREADS=3: so many threads the run had, on a machine with other CPUs",)
    assert "OMP_NUM_THREADS" not in same.variables


def test_the_cells_of_a_notebook_import_from_its_folder_first(tmp_path: Path) -> None:
    moved = Moved(tmp_path / "old", tmp_path / "copy")
    run = entry(kind="notebook", folder=tmp_path / "old" / "sub")
    found = repeated_command(run, tmp_path, moved, tmp_path / "n.py", present={"PYTHONPATH": "/mine"})

    assert found.variables["PYTHONPATH"] == f"{tmp_path}/copy/sub:/mine"


def test_the_cells_of_a_notebook_are_those_of_the_record_also_if_it_lies_in_the_repository(tmp_path: Path) -> None:
    notebook = tmp_path / "old" / "runs" / "n.py"
    moved = Moved(tmp_path / "old", tmp_path / "copy")
    found = repeated_command(entry(kind="notebook"), tmp_path, moved, notebook, present={})

    assert found.arguments == (sys.executable, str(notebook))


def test_the_folder_of_the_training_takes_the_place_of_the_one_in_the_copy(tmp_path: Path) -> None:
    run = entry("t.py") | {"train_dir": str(tmp_path / "old" / "runs" / "a")}

    copied = repeated_command(run, tmp_path, Moved(tmp_path / "old", tmp_path / "copy"), present={})
    here = repeated_command(run, tmp_path, present={})

    assert copied.variables["TRAIN_MANAGER_TRAIN_DIR_OF"] == str(tmp_path / "copy" / "runs" / "a")
    assert here.variables["TRAIN_MANAGER_TRAIN_DIR_OF"] == str(tmp_path / "old" / "runs" / "a")


def test_the_training_that_is_to_stop_is_named_by_its_number(tmp_path: Path) -> None:
    run, outer = entry("t.py") | {"manager": 2}, {"TRAIN_MANAGER_STEPS": "1:3"}

    stopped = repeated_command(run, tmp_path, steps=100, present=outer)
    whole = repeated_command(run, tmp_path, present=outer)

    assert stopped.variables["TRAIN_MANAGER_STEPS"] == "2:100"
    assert "TRAIN_MANAGER_STEPS" not in whole.variables


def test_an_interactive_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an interactive session, so it cannot be run again"):
        repeated_command(entry(kind="interactive"), tmp_path)


def test_one_process_of_several_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: repeated_command(entry("t.py", variables={"WORLD_SIZE": "8"}), tmp_path)) == (
        "the run was one process of 8, which a launcher had started, so it cannot be run again alone\n"
        "  run the launcher yourself, with TRAIN_MANAGER_TRAIN_DIR=<a new folder>, and `train-manager compare` the two"
    )
