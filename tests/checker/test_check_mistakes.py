"""Mistakes in hooks that the check finds before the first stage, what it says of them, and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.checker.checking import At, Loop, ask, mistake
from train_manager import Extensible, Extension, fixture, modifies, provides
from train_manager.errors import CheckError, FixtureNotFound, HookError, OrderError, StageError


def test_a_hook_of_a_stage_that_does_not_exist_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_stepp(self) -> None: ...  # misspelt stage

    found = mistake(Watcher())
    assert isinstance(found, HookError)
    assert str(found) == (
        "Watcher.post_stepp (extension 'watcher') would never run: post_stepp names no stage\n"
        f"  asked at     {at('misspelt stage')}\n"
        "  did you mean 'post_step'?"
    )


def test_a_fixture_that_nobody_defines_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_step(self, los: float) -> None: ...  # misspelt fixture

    found = mistake(Watcher())
    assert isinstance(found, FixtureNotFound)
    assert str(found) == (
        "Watcher.post_step wants 'los', which is never alive at post_step\n"
        f"  asked at     {at('misspelt fixture')}\n"
        "  alive        batch, epoch_num, loss\n"
        "  did you mean 'loss'?"
    )


def test_a_fixture_of_another_branch_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_eval(self, batch: int) -> None: ...  # another branch

    assert str(mistake(Watcher())) == (
        "Watcher.post_eval wants 'batch', which is not alive at post_eval: it lives in stage 'step'\n"
        f"  asked at     {at('another branch')}\n"
        "  alive        epoch_num, result\n"
        "  use post_step"
    )


def test_a_fixture_that_is_dead_by_then_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_run(self, result: int) -> None: ...  # dead by then

    assert str(mistake(Watcher())) == (
        "Watcher.post_run wants 'result', which is not alive at post_run: it lives in stage 'eval'\n"
        f"  asked at     {at('dead by then')}\n"
        "  alive        epoch_num\n"
        "  use post_eval"
    )


def test_a_fixture_that_is_defined_only_later_in_the_stage_is_found(at: At) -> None:
    class Watcher(Extension):
        def pre_step(self, loss: float) -> None: ...  # too early

    assert str(mistake(Watcher())) == (
        "Watcher.pre_step wants 'loss', which is not alive at pre_step: it lives in stage 'step'\n"
        f"  asked at     {at('too early')}\n"
        "  alive        batch, epoch_num\n"
        "  it is defined later: use post_step"
    )


def test_an_around_hook_that_asks_for_what_a_pre_hook_defines_is_found() -> None:
    class Watcher(Extension):
        @provides("scale")
        def pre_step(self) -> float:
            return 2.0

        def around_step(self, scale: float) -> Iterator[None]:
            yield

    assert "which is not alive at around_step" in str(mistake(Watcher()))


def test_a_provider_in_a_stage_where_its_parameters_are_never_alive_is_found(at: At) -> None:
    class Watcher(Extension):
        @fixture("run")  # provider in the wrong stage
        def doubled(self, loss: float) -> float:
            return 2 * loss

    assert str(mistake(Watcher())) == (
        "Watcher.doubled wants 'loss', which is not alive at stage 'run': it lives in stage 'step'\n"
        f"  asked at     {at('provider in the wrong stage')}\n"
        "  alive        doubled, epoch_num\n"
        '  provide it there: @fixture("step")'
    )


def test_a_provider_of_a_stage_that_does_not_exist_is_found(at: At) -> None:
    class Watcher(Extension):
        @fixture("stp")  # provider of no stage
        def doubled(self) -> float:
            return 2.0

    assert str(mistake(Watcher())) == (
        "Watcher.doubled (extension 'watcher') would never run: @fixture(\"stp\") names no stage\n"
        f"  asked at     {at('provider of no stage')}\n"
        "  did you mean 'step'?"
    )


def test_providers_that_ask_for_each_other_are_found(at: At) -> None:
    class Watcher(Extension):
        @fixture("step")  # first of the cycle
        def one(self, two: int) -> int:
            return two

        @fixture("run")  # second of the cycle
        def two(self, one: int) -> int:
            return one

    with pytest.raises(CheckError) as error:
        Loop([Watcher()]).check()
    (found,) = [found for found in error.value.mistakes if isinstance(found, OrderError)]
    first = f"Watcher.one ({at('first of the cycle')})"
    assert str(found) == (
        "Watcher.one asks for itself in a cycle\n"
        f"  asked at     {at('first of the cycle')}\n"
        f"  requested by {first}\n"
        f"  requested by Watcher.two ({at('second of the cycle')})\n"
        f"  requested by {first}\n"
        "  let one of them be computed without the others"
    )


def test_a_modifier_of_what_nobody_defines_is_found(at: At) -> None:
    class Scale(Extension):
        @modifies("gradient")  # nobody defines it
        def post_step(self) -> float:
            return 1.0

    assert str(mistake(Scale())) == (
        "Scale.post_step modifies 'gradient', which is never alive at post_step\n"
        f"  asked at     {at('nobody defines it')}\n"
        "  alive        batch, epoch_num, loss\n"
        '  nothing defines it; to define it: @provides("gradient")'
    )


def test_a_provider_for_a_stage_that_is_never_around_is_found(at: At) -> None:
    class Mean(Extension):
        @provides("mean", stage="eval")  # never around
        def post_step(self) -> float:
            return 1.0

    found = mistake(Mean())
    assert isinstance(found, StageError)
    assert str(found) == (
        "Mean.post_step provides a fixture of stage 'eval', which is never open around 'step'\n"
        f"  asked at     {at('never around')}\n"
        "  name an enclosing stage, or leave `stage` out"
    )


def test_an_undeclared_write_is_found_where_the_extensible_is_strict(at: At) -> None:
    class Strict(Loop):
        strict = True

    class Writer(Extension):
        def pre_step(self, fixtures: Any) -> None:  # undeclared write
            fixtures["extra"] = 1

    assert str(mistake(Writer(), Strict)) == (
        "Writer.pre_step writes 'extra' without declaring it, which `strict` refuses\n"
        f"  asked at     {at('undeclared write')}\n"
        '  declare it and return the value: @provides("extra")'
    )
    assert Loop([Writer()]).check() == []


def test_a_hook_of_every_stage_whose_parameters_are_never_alive_together_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_stage(self, batch: int, result: int) -> None: ...  # never meet

    assert str(mistake(Watcher())) == (
        "Watcher.post_stage wants 'batch' and 'result', which are never alive in the same stage\n"
        f"  asked at     {at('never meet')}\n"
        "  split it into hooks of the stages in which they are alive"
    )


def test_all_mistakes_come_at_once_and_are_numbered(at: At) -> None:
    class Watcher(Extension):
        def pre_stepp(self) -> None: ...  # first mistake

        def post_step(self, los: float) -> None: ...  # second mistake

    with pytest.raises(CheckError) as error:
        Loop([Watcher()]).check()
    assert [type(found) for found in error.value.mistakes] == [HookError, FixtureNotFound]
    assert str(error.value) == (
        "2 mistakes in the hooks of Loop, found before the first stage\n"
        "1. Watcher.pre_stepp (extension 'watcher') would never run: pre_stepp names no stage\n"
        f"     asked at     {at('first mistake')}\n"
        "     did you mean 'pre_step'?\n"
        "2. Watcher.post_step wants 'los', which is never alive at post_step\n"
        f"     asked at     {at('second mistake')}\n"
        "     alive        batch, epoch_num, loss\n"
        "     did you mean 'loss'?"
    )


def test_the_check_opens_no_stage_and_calls_no_hook() -> None:
    class Loud(Extension):
        def pre_stage(self) -> None:
            raise AssertionError

        @fixture("step")
        def asked(self) -> None:
            raise AssertionError

        def post_step(self, asked: None) -> None:
            raise AssertionError

    assert Loop([Loud()]).check() == []


def test_an_entry_restricts_where_a_fixture_must_be_alive() -> None:
    class Watcher(Extension):
        def post_eval(self, epoch_num: int) -> None: ...

    loop = Loop([Watcher()])
    assert loop.check("train") == []
    with pytest.raises(CheckError, match="wants 'epoch_num', which is never alive at post_eval"):
        loop.check("evaluate")


def test_a_hook_of_a_stage_outside_of_the_entry_is_no_mistake() -> None:
    assert Loop([ask("step", "batch")]).check("evaluate") == []


def test_a_default_makes_a_parameter_optional() -> None:
    class Watcher(Extension):
        def pre_step(self, momentum: float = 0.9) -> None: ...

    assert Loop([Watcher()]).check() == []


def test_an_overridden_provider_is_not_looked_at() -> None:
    class Base(Extension):
        @fixture("step")
        def norm(self, nothing: int, doubled: int) -> int:
            return nothing

    class Better(Extension):
        @fixture("step", override=True)
        def norm(self, batch: int) -> int:
            return batch

        @fixture("step")
        def doubled(self, norm: int) -> int:
            return 2 * norm

    assert Loop([Better(), Base()]).check() == []


def test_providers_of_stages_that_are_never_open_together_make_no_cycle() -> None:
    class Steps(Extension):
        @fixture("step")
        def first(self, second: int) -> int:
            return second

        @provides("second")
        def pre_step(self) -> int:
            return 1

    class Evals(Extension):
        @fixture("eval")
        def second(self, first: int) -> int:
            return first

        @provides("first")
        def pre_eval(self) -> int:
            return 1

    assert Loop([Steps(), Evals()]).check() == []


def test_a_lazy_fixture_that_is_asked_for_before_what_it_is_made_of_is_found() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                self.fixtures["loss"] = 1

    class Asking(Extension):
        @fixture("fit")
        def half(self, loss: float) -> float:
            return loss / 2

        def pre_fit(self, half: float) -> None: ...

    with pytest.raises(CheckError, match=r"Asking\.pre_fit asks for 'half', for which Asking\.half wants 'loss'"):
        Loop([Asking()]).check()
