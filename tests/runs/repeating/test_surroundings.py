from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from train_manager.runs.repeating.surroundings import (
    NO_SEED,
    NOT_DETERMINISTIC,
    causes_of,
    code_around,
    differences_around,
)


def made(**arguments: Any) -> dict[str, Any]:
    return {"parameters": {"$object": "train_manager.manager:TrainManager", "arguments": arguments}}


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({"seed": 0}, {"seed": None}, "seed: 0 there, none here"),
        (made(epochs=1), made(epochs=2), None),
        ({"data": {"train_data": {"kind": "list", "length": 1}}}, {"data": {"train_data": {"kind": "list"}}}, None),
        ({"environment": {"threads": {"torch": 1}}}, {"environment": {"threads": {"torch": 2}}}, None),
    ],
    ids=["seed", "parameter", "data", "environment"],
)
def test_what_differs_between_two_runs_is_told(one: dict[str, Any], other: dict[str, Any], told: str | None) -> None:
    (found,) = differences_around(one, other)

    assert found == told or told is None
    assert found.startswith(
        ("seed: ", "parameter: epochs 1 there, 2 here", "data: train_data.length ", "environment: threads.torch 1 ")
    )


def test_what_differs_in_each_reproduction_is_not_told() -> None:
    def entry(folder: str) -> dict[str, Any]:
        variables = {"PYTHONPATH": folder, "TRAIN_MANAGER_TRAIN_DIR": folder}
        environment = {"editable": {"digits": folder}, "variables": variables}
        return {"id": folder, **made(train_dir=folder), "environment": environment}

    assert list(differences_around(entry("/one"), entry("/other"))) == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"packages": {"torch": "2.13.0"}}, {"packages": {"torch": "2.12.0"}}, ["torch 2.13.0 there, 2.12.0 here"]),
        ({"packages": {"a": "1"}}, {"packages": {"b": "1"}}, ["a 1 there, none here", "b none there, 1 here"]),
        ({"python": "3.12.1"}, {"python": "3.11.7"}, ["python 3.12.1 there, 3.11.7 here"]),
        ({"python": "3.12.1"}, {}, []),
        ({"devices": {"cpu": "A"}}, {"devices": {"cpu": "B"}}, ["devices.cpu A there, B here"]),
        ({"devices": {"gpus": [{"name": "H200", "memory": 5}]}}, {"devices": {"gpus": [{"name": "H200"}]}}, []),
        ({"devices": {"gpus": [{"name": "H200"}]}}, {"devices": {"gpus": []}}, ["devices.gpus H200 there, none here"]),
        ({"variables": {"OMP_NUM_THREADS": "1"}}, {"variables": {}}, ["variables.OMP_NUM_THREADS 1 there, none here"]),
        ({"variables": {"TRAIN_MANAGER_TRAIN_DIR": "a", "SLURM_JOB_ID": "1"}}, {"variables": {}}, []),
    ],
)
def test_a_difference_of_the_environment_in_words(before: dict[str, Any], now: dict[str, Any], told: list[str]) -> None:
    found = differences_around({"environment": before}, {"environment": now})

    assert list(found) == [f"environment: {text}" for text in told]


def test_many_differences_are_cut() -> None:
    names = {f"package-{number}": "1" for number in range(20)}
    found = list(differences_around({"environment": {"packages": names}}, {"environment": {"packages": {}}}))

    assert len(found) == 13
    assert found[-1] == "environment: 8 more"


def test_parameters_that_cannot_be_read_are_told() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"a": deep}

    (found,) = differences_around(made(model=deep), made(model="x"))

    assert found == (
        "parameter: not compared, as these are not recorded parameters: model.a.a.a.a.a.a.a is nested more than "
        "100 deep"
    )


def test_a_missing_seed_is_a_cause_unless_the_code_differs() -> None:
    assert list(causes_of({}, [])) == [NO_SEED, NOT_DETERMINISTIC]
    assert list(causes_of({}, ["environment: numpy 1 there, 2 here"])) == [NO_SEED]
    assert list(causes_of({}, ["code: train.py line 1: - a + b"])) == []
    assert list(causes_of({"seed": 0}, [])) == [NOT_DETERMINISTIC]


def test_what_a_program_reads_is_told_before_it_is_said_not_to_be_deterministic() -> None:
    assert list(causes_of({"seed": 0}, [], ["train.py line 1 reads"])) == ["train.py line 1 reads", NOT_DETERMINISTIC]
    assert list(causes_of({"seed": 0}, ["parameter: lr 1 there, 2 here"], ["train.py line 1 reads"])) == [
        "train.py line 1 reads"
    ]
    assert list(causes_of({"seed": 0}, ["code: train.py line 1: - a + b"], ["train.py line 1 reads"])) == []


def test_a_seed_that_the_program_gave_to_torch_counts() -> None:
    chosen, drawn = ({"environment": {"seeds": {"torch": seed}}} for seed in (1, 6728042131072118))

    assert list(causes_of(chosen, [])) == [NOT_DETERMINISTIC]
    assert list(causes_of(drawn, [])) == [NO_SEED, NOT_DETERMINISTIC]
    assert list(differences_around(chosen, drawn)) == ["environment: seed of torch 1 there, none here"]
    assert list(differences_around(drawn, {"environment": {"seeds": {"torch": 6728042131072119}}})) == []


def test_that_no_code_was_recorded_of_both_is_not_a_difference(tmp_path: Path) -> None:
    record = {"reason": "not in a git repository", "repositories": []}

    assert list(code_around((tmp_path, record), (tmp_path, record))) == []
    assert list(code_around((tmp_path, record), (tmp_path, {"repositories": []}))) == [
        "code: of the first run: not in a git repository"
    ]
