"""Unknown code that has the object: it may call any method of it, in stages of its own and with any fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.checker.checking import ask
from train_manager import Extensible
from train_manager.errors import CheckError

Helper = Callable[..., Any]


class Handing(Extensible):
    def fit(self, helper: Helper) -> None:
        with self.staged("run", {"epoch": 1}):
            helper(self)

    def step(self) -> None:
        with self.staged("step", {"batch": 1}):
            pass

    def evaluate(self) -> None:
        with self.staged("eval", {"score": 1}):
            self.step()


@pytest.mark.parametrize("entry", [None, "fit"])
def test_a_stage_that_only_unknown_code_opens_may_have_any_fixture(entry: str | None) -> None:
    asks = [ask("step", "batch", "epoch", "made_by_helper"), ask("eval", "made_by_helper"), ask("opened_by_helper")]
    (unknown,) = Handing(asks).check(entry)
    assert unknown.endswith("hands `self` to `helper`")


def test_what_the_entry_leads_to_is_still_compared() -> None:
    with pytest.raises(CheckError, match="'epohc'"):
        Handing([ask("run", "epohc")]).check("fit")


def test_a_stage_that_the_entry_opens_may_be_opened_by_unknown_code_too() -> None:
    class Both(Handing):
        def fit(self, helper: Helper) -> None:
            with self.staged("run"):
                self.step()
            with self.staged("late"):
                helper(self)

    Both([ask("step", "score")]).check("fit")  # the helper may call `evaluate`


def test_without_unknown_code_the_entry_alone_decides() -> None:
    class Plain(Handing):
        def fit(self, helper: Helper) -> None:
            with self.staged("run"):
                self.step()

    with pytest.raises(CheckError, match="'score'"):
        Plain([ask("step", "score")]).check("fit")


def test_code_that_gets_only_the_fixtures_calls_no_methods() -> None:
    class Fixtures(Handing):
        def fit(self, helper: Helper) -> None:
            with self.staged("run"):
                self.step()
            with self.staged("late"):
                helper(self.fixtures)

    with pytest.raises(CheckError, match="'score'"):
        Fixtures([ask("step", "score")]).check("fit")
