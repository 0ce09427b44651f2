from __future__ import annotations

from collections.abc import Callable

import pytest

from train_manager import Extensible
from train_manager.core.calls import NamedCall
from train_manager.errors import FixtureNotFound

At = Callable[[str], str]


def test_a_live_none_is_not_absent() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": None}):
        assert NamedCall(lambda x="absent": x)(extensible._store) is None


def test_keyword_only_parameters_are_named_too() -> None:
    def function(*, x: int, y: int = 5) -> tuple[int, int]:
        return x, y

    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        assert NamedCall(function)(extensible._store) == (1, 5)


def test_an_unknown_name_is_refused_with_the_near_match_and_the_line_of_the_function(at: At) -> None:
    def report(losses: int) -> None:  # where report is defined
        raise AssertionError("never called")

    extensible = Extensible()
    with extensible.staged("run"), extensible.staged("step", {"loss": 1}):
        with pytest.raises(FixtureNotFound) as error:
            NamedCall(report, "Report.post_step")(extensible._store)
    assert str(error.value) == (
        "Report.post_step wants 'losses', which no open stage provides\n"
        f"  asked at     {at('where report is defined')}\n"
        "  open stages  run > step\n"
        "  alive        loss\n"
        "  did you mean 'loss'?"
    )
    assert error.value.asked_by == "Report.post_step"
