"""The models on which the checker is tried are what they say: asked by brute force, without the checker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.checks.brute_force import is_clean, made, run, way_of_leak
from tests.checks.cases import Case
from tests.checks.clean_models import CLEAN, NOTED
from tests.checks.leaking_models import LEAKING, LEAKING_FAMILIES
from tests.checks.rolled import rolled
from tests.checks.unjudged_models import DROPPED, UNCHANGEABLE, UNJUDGED, UNSTEADY_LEAKING
from tests.support.rotation import part_of, places_of


def in_modes(cases: Sequence[Case]) -> list[Any]:
    """Some cases, each in one of its modes, in turn; or all in all."""
    pairs = [(case, mode) for number, case in enumerate(part_of(cases, 3)) for mode in places_of(number, case.modes)]
    return [pytest.param(case, mode, id=f"{case.name}, {mode}") for case, mode in pairs]


EVERY = (*LEAKING, *CLEAN, *NOTED, *UNJUDGED, *DROPPED, *UNSTEADY_LEAKING, *UNCHANGEABLE)


@pytest.mark.parametrize(("case", "mode"), in_modes(LEAKING))
def test_a_leaking_model_leaks_in_the_direction_that_it_says(case: Case, mode: str) -> None:
    assert way_of_leak(case, mode) == case.way


@pytest.mark.parametrize(("case", "mode"), in_modes(CLEAN))
def test_a_clean_model_keeps_its_examples_apart(case: Case, mode: str) -> None:
    coarse = case.name in ("bf16", "autocast")  # sums of gradients have two digits

    assert is_clean(case, mode, within=0.05 if coarse else 1e-4)


@pytest.mark.parametrize("case", part_of(CLEAN, 3), ids=lambda case: case.name)
def test_a_clean_model_that_rolls_its_input_leaks(case: Case) -> None:
    assert way_of_leak(rolled(case), case.modes[-1]) == "forward"


@pytest.mark.parametrize("case", [*LEAKING, *NOTED, *UNSTEADY_LEAKING], ids=lambda case: case.name)
def test_a_leaking_model_names_one_of_its_modules(case: Case) -> None:
    assert case.culprit in dict(made(case, "train").named_modules())


@pytest.mark.parametrize("case", part_of(LEAKING, 3), ids=lambda case: case.name)
def test_a_leaking_model_gives_the_same_under_one_seed(case: Case) -> None:
    first, second = run(case, case.modes[0]), run(case, case.modes[0])

    assert all(torch.equal(*rows) for rows in zip(first.rows, second.rows, strict=True))
    assert torch.equal(first.parameters, second.parameters)


@pytest.mark.parametrize("case", [*UNJUDGED, *DROPPED], ids=lambda case: case.name)
def test_a_model_that_draws_otherwise_looks_like_a_leak_if_nobody_asks_what_was_drawn(case: Case) -> None:
    assert way_of_leak(case, case.modes[0]) == "forward"


def test_each_family_of_leaks_has_five_models_and_both_kinds_have_45() -> None:
    assert {name: len(cases) for name, cases in LEAKING_FAMILIES.items() if len(cases) < 5} == {}
    assert min(len(LEAKING), len(CLEAN)) >= 45


def test_no_two_models_have_one_name() -> None:
    names = Counter(case.name for case in EVERY)

    assert [name for name, count in names.items() if count > 1] == []
