from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.record.run_file import read_runs, write_entry
from train_manager.runs.repeating.surroundings import NO_SEED, NOT_DETERMINISTIC, causes_of, differences_around
from train_manager.testing import tiny_manager


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The entry of a training."""
    folder = tmp_path_factory.mktemp("run")
    tiny_manager(RunRecord(), MetricStore(), train_dir=folder).train()
    return read_runs(folder)[0]


def between(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], *, code: bool = False) -> list[str]:
    """What is told of two runs with these entries."""
    for folder, found in ("there", one), ("here", other):
        (tmp_path / folder).mkdir()
        write_entry(tmp_path / folder, found)
    there, here = ((tmp_path / folder, found["id"]) for folder, found in (("there", one), ("here", other)))
    return differences_around(there, here, code=code)


def made(entry: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return {**entry, "parameters": {"$object": "train_manager.manager:TrainManager", "arguments": arguments}}


def around(entry: dict[str, Any], **environment: Any) -> dict[str, Any]:
    return {**entry, "environment": environment}


def test_another_argument_is_told(tmp_path: Path, entry: dict[str, Any]) -> None:
    found = between(tmp_path, made(entry, epochs=1, seed=0), made(entry, epochs=2, seed=1))

    assert found == ["parameter: epochs 1 there, 2 here", "parameter: seed 0 there, 1 here"]


def test_what_differs_in_each_reproduction_is_not_told(tmp_path: Path, entry: dict[str, Any]) -> None:
    def of(folder: str, **more: Any) -> dict[str, Any]:
        variables = {"PYTHONPATH": folder, "TRAIN_MANAGER_TRAIN_DIR": folder, "SLURM_JOB_ID": folder}
        environment = {"editable": {"digits": folder}, "variables": variables, "patterns": [folder]}
        command = {"kind": "script", "arguments": ["python", folder], "folder": folder}
        return {**made(entry, train_dir=folder), "environment": environment, "command": command, **more}

    resumed = {"goes_on_from": {"run": "a", "step": 3, "checkpoint": "step-000000000003"}}

    assert between(tmp_path, of("/one", **resumed), of("/other")) == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (
            {"packages": {"torch": "2.13.0"}},
            {"packages": {"torch": "2.12.0"}},
            ["packages.torch 2.13.0 there, 2.12.0 here"],
        ),
        ({"threads": {"torch": 1}}, {"threads": {"torch": 2}}, ["threads.torch 1 there, 2 here"]),
        ({"python": "3.12.1"}, {"python": "3.11.7"}, ["python 3.12.1 there, 3.11.7 here"]),
        ({"devices": {"cpu": "A"}}, {"devices": {"cpu": "B"}}, ["devices.cpu A there, B here"]),
        (
            {"variables": {"OMP_NUM_THREADS": "1", "A": "b"}},
            {"variables": {"A": "b"}},
            ["variables.OMP_NUM_THREADS 1 there, none here"],
        ),
        ({"variables": {"SLURM_JOB_ID": "1"}}, {"variables": {}}, []),
        ({"seeds": {"torch": 1}}, {"seeds": {"torch": 2}}, ["seed of torch 1 there, 2 here"]),
        ({"seeds": {"torch": 6728042131072118}}, {"seeds": {"torch": 6728042131072119}}, []),
    ],
)
def test_a_difference_of_the_environment_in_words(
    tmp_path: Path, entry: dict[str, Any], before: dict[str, Any], now: dict[str, Any], told: list[str]
) -> None:
    found = between(tmp_path, around(entry, **before), around(entry, **now))

    assert found == [f"environment: {text}" for text in told]


def test_many_differences_are_cut(tmp_path: Path, entry: dict[str, Any]) -> None:
    names = {f"package-{number:02}": "1" for number in range(20)}

    found = between(tmp_path, around(entry, packages=names), around(entry, packages=dict.fromkeys(names, "2")))

    assert len(found) == 13
    assert found[-1] == "environment: 8 more"


def test_code_that_was_not_recorded_of_both_is_told(tmp_path: Path, entry: dict[str, Any]) -> None:
    assert between(tmp_path, entry, entry, code=True) == ["code: not compared, as it was not recorded of both"]


def test_a_missing_seed_is_a_cause_unless_the_code_differs() -> None:
    assert list(causes_of({}, [])) == [NO_SEED, NOT_DETERMINISTIC]
    assert list(causes_of({}, ["environment: numpy 1 there, 2 here"])) == [NO_SEED]
    assert list(causes_of({}, ["code: train.py line 1: - a + b"])) == []
    assert list(causes_of({"seed": 0}, [])) == [NOT_DETERMINISTIC]


def test_a_seed_that_the_program_gave_to_torch_counts() -> None:
    chosen, drawn = ({"environment": {"seeds": {"torch": seed}}} for seed in (1, 6728042131072118))

    assert list(causes_of(chosen, [])) == [NOT_DETERMINISTIC]
    assert list(causes_of(drawn, [])) == [NO_SEED, NOT_DETERMINISTIC]
