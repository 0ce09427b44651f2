"""The models on which the checker is tried are what they say: asked by brute force, without the checker."""

from __future__ import annotations

import pytest
import torch

from tests.diagnosis.brute_force import made, run, way_of_leak
from tests.diagnosis.cases import Case
from tests.diagnosis.leaking_models import LEAKING, LEAKING_FAMILIES

IN_LEAKING_MODES = [pytest.param(case, mode, id=f"{case.name}, {mode}") for case in LEAKING for mode in case.modes]


@pytest.mark.parametrize(("case", "mode"), IN_LEAKING_MODES)
def test_a_leaking_model_leaks_in_the_direction_that_it_says(case: Case, mode: str) -> None:
    assert way_of_leak(case, mode) == case.way


@pytest.mark.parametrize("case", LEAKING, ids=lambda case: case.name)
def test_a_leaking_model_names_one_of_its_modules(case: Case) -> None:
    assert case.culprit in dict(made(case, "train").named_modules())


@pytest.mark.parametrize("case", LEAKING, ids=lambda case: case.name)
def test_a_model_gives_the_same_under_one_seed(case: Case) -> None:
    first, second = run(case, case.modes[0]), run(case, case.modes[0])

    assert all(torch.equal(*rows) for rows in zip(first.rows, second.rows, strict=True))
    assert torch.equal(first.parameters, second.parameters)


def test_each_family_has_at_least_five_models() -> None:
    assert {name: len(cases) for name, cases in LEAKING_FAMILIES.items() if len(cases) < 5} == {}
