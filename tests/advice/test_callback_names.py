from __future__ import annotations

import pytest

from tests.advice.callback_names import CASES, Case, refusal, use

every_case = pytest.mark.parametrize("case", CASES, ids=[f"{case.tool}-{case.written}" for case in CASES])


@every_case
def test_the_refusal_of_a_name_of_another_tool_tells_what_it_is_called_here(case: Case) -> None:
    cure = str(refusal(case)).splitlines()[-1].split(" (")[0]
    assert case.cure in cure.split()


@every_case
def test_a_method_that_is_renamed_to_the_cure_runs(case: Case) -> None:
    assert use(case, case.cure)
