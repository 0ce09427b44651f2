"""How a stage may be named and opened: by a constant, a variable, or ``staged`` under any name."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import train_manager
from tests.checker.checking import At, ask
from train_manager import Extensible, Extension
from train_manager import staged as part

STAGE = "constant"


def test_a_stage_name_may_stand_in_a_constant_or_a_variable() -> None:
    class Fits(Extensible):
        def fit(self, fast: bool) -> None:
            name = "variable"
            with self.staged(STAGE), self.staged(name), self.staged("quick" if fast else "slow", {"x": 1}):
                pass

    fits = Fits([ask("constant"), ask("variable"), ask("quick", "x"), ask("slow", "x")])
    assert fits.check() == []


def test_a_stage_name_that_is_made_at_run_time_is_said_and_passed_over(at: At) -> None:
    class Fits(Extensible):
        def fit(self, number: int) -> None:
            with self.staged(f"fit_{number}", {"x": 1}):  # made at run time
                with self.staged("inner"):
                    pass

    fits = Fits([ask("fit_1", "y"), ask("inner", "x", "z")])
    assert fits.check() == [f"a stage whose name is made at run time ({at('made at run time')})"]


@pytest.mark.parametrize("binding", ["parameter", "augmented", "loop", "walrus", "unpacked"])
def test_a_name_that_is_bound_in_another_way_is_made_at_run_time(binding: str) -> None:
    class Parameter(Extensible):
        def fit(self, name: str = "") -> None:
            if not name:
                name = "fit"
            with self.staged(name):
                pass

    class Augmented(Extensible):
        def fit(self) -> None:
            name = "fit"
            name += "_more"
            with self.staged(name):
                pass

    class Loop(Extensible):
        def fit(self) -> None:
            name = "fit"
            for name in ("fit", "more"):
                with self.staged(name):
                    pass

    class Walrus(Extensible):
        def fit(self) -> None:
            name = "fit"
            if name := name + "_more":
                with self.staged(name):
                    pass

    class Unpacked(Extensible):
        def fit(self) -> None:
            name = "fit"
            name, _ = "fit_more", 1
            with self.staged(name):
                pass

    fits = {"parameter": Parameter, "augmented": Augmented, "loop": Loop, "walrus": Walrus, "unpacked": Unpacked}
    (unknown,) = fits[binding]([ask("fit_more")]).check()
    assert unknown.startswith("a stage whose name is made at run time")


def test_a_stage_on_an_exit_stack_is_said_and_passed_over() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with ExitStack() as stack:
                stack.enter_context(self.staged("entered", {"x": 1}))
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("entered", "x"), ask("inner", "x")]).check()
    assert unknown.endswith("opens a stage outside of a `with` statement")


def test_a_bare_staged_is_a_stage() -> None:
    from train_manager import staged

    class Fits(Extensible):
        def fit(self) -> None:
            with staged("fit", {"x": 1}):
                self.fixtures["y"] = 1

    assert Fits([ask("fit", "x")]).check() == []


def test_staged_under_another_name_is_the_same() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            with part("fit"), train_manager.staged("inner"):
                pass

    assert Loop([Extension.of(post_inner=lambda: None)]).check() == []


def test_a_bound_staged_is_said_to_be_unknown() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            opened = self.staged
            with opened("fit"):
                pass

    assert len(Loop([Extension.of(post_fit=lambda: None)]).check()) == 1
