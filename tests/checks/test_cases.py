"""The models on which the checker is tried are many, of all kinds, and each has a name of its own."""

from __future__ import annotations

from collections import Counter

from tests.checks.clean_models import CLEAN, NOTED
from tests.checks.leaking_models import LEAKING, LEAKING_FAMILIES
from tests.checks.unjudged_models import DROPPED, UNCHANGEABLE, UNJUDGED, UNSTEADY_LEAKING

EVERY = (*LEAKING, *CLEAN, *NOTED, *UNJUDGED, *DROPPED, *UNSTEADY_LEAKING, *UNCHANGEABLE)


def test_each_family_of_leaks_has_five_models_and_both_kinds_have_45() -> None:
    assert {name: len(cases) for name, cases in LEAKING_FAMILIES.items() if len(cases) < 5} == {}
    assert min(len(LEAKING), len(CLEAN)) >= 45


def test_no_two_models_have_one_name() -> None:
    names = Counter(case.name for case in EVERY)

    assert [name for name, count in names.items() if count > 1] == []
