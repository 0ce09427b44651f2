"""The check before the first stage: what it finds, and what it must not take for a mistake."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

import train_manager
from train_manager import (
    CheckError,
    Extensible,
    Extension,
    FixtureNotFound,
    HookError,
    OrderError,
    StageError,
    fixture,
    modifies,
    provides,
)
from train_manager import staged as part

At = Callable[[str], str]


class Loop(Extensible):
    """A run of steps, and an evaluation beside it."""

    def train(self) -> None:
        with self.staged("run", {"epoch_num": 0}):
            self.evaluate()
            for batch in range(3):
                self.step(batch)

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            with self.staged("forward"):
                self.fixtures.define("loss", 0.5, stage="step")

    def evaluate(self) -> None:
        with self.staged("eval"):
            self.fixtures["result"] = 1


def mistake(extension: Extension, extensible: type[Extensible] = Loop) -> Exception:
    """The one mistake that the check finds."""
    with pytest.raises(CheckError) as error:
        extensible([extension]).check()
    (found,) = error.value.mistakes
    return found


def ask(stage: str, *names: str) -> Extension:
    """An extension with one hook that asks for these."""
    scope: dict[str, Any] = {}
    exec(f"def pre_{stage}(self, {', '.join(names)}): ...", scope)
    asks: Extension = type("Asks", (Extension,), {f"pre_{stage}": scope[f"pre_{stage}"]})()
    return asks


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_a_hook_of_a_stage_that_does_not_exist_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_stepp(self) -> None: ...  # misspelt stage

    found = mistake(Watcher())
    assert isinstance(found, HookError)
    assert str(found) == (
        "Watcher.post_stepp (extension 'watcher') would never run: post_stepp names no stage\n"
        f"  asked at     {at('misspelt stage')}\n"
        "  did you mean 'step'?"
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
        "  that is another branch: use post_step, or define it in a stage around both"
    )


def test_a_fixture_that_is_dead_by_then_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_run(self, result: int) -> None: ...  # dead by then

    assert str(mistake(Watcher())) == (
        "Watcher.post_run wants 'result', which is not alive at post_run: it lives in stage 'eval'\n"
        f"  asked at     {at('dead by then')}\n"
        "  alive        epoch_num\n"
        '  use post_eval; to keep it, provide it under a name of its own: @provides(..., stage="run")'
    )


def test_a_fixture_that_is_defined_only_later_in_the_stage_is_found(at: At) -> None:
    class Watcher(Extension):
        def pre_step(self, loss: float) -> None: ...  # too early

    assert str(mistake(Watcher())) == (
        "Watcher.pre_step wants 'loss', which is not alive at pre_step: it lives in stage 'step'\n"
        f"  asked at     {at('too early')}\n"
        "  alive        batch, epoch_num\n"
        "  it is defined later: use post_step, or a stage after that"
    )


def test_an_around_hook_that_asks_for_what_a_pre_hook_defines_is_found() -> None:
    class Watcher(Extension):
        @provides("scale")
        def pre_step(self) -> float:
            return 2.0

        def around_step(self, scale: float) -> Iterator[None]:
            yield

    assert "which is not alive at around_step" in str(mistake(Watcher()))


def test_a_provider_in_a_stage_where_its_wishes_never_live_is_found(at: At) -> None:
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
        @fixture("step")  # first of the circle
        def one(self, two: int) -> int:
            return two

        @fixture("run")  # second of the circle
        def two(self, one: int) -> int:
            return one

    with pytest.raises(CheckError) as error:
        Loop([Watcher()]).check()
    (found,) = [found for found in error.value.mistakes if isinstance(found, OrderError)]
    first = f"Watcher.one ({at('first of the circle')})"
    assert str(found) == (
        "Watcher.one asks for itself in a circle\n"
        f"  asked at     {at('first of the circle')}\n"
        f"  requested by {first}\n"
        f"  requested by Watcher.two ({at('second of the circle')})\n"
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
        "  nobody defines it; give the parameter a default if it may be absent"
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


def test_a_hook_of_every_stage_whose_wishes_never_meet_is_found(at: At) -> None:
    class Watcher(Extension):
        def post_stage(self, batch: int, result: int) -> None: ...  # never meet

    assert str(mistake(Watcher())) == (
        "Watcher.post_stage wants 'batch' and 'result', which are alive together in no stage\n"
        f"  asked at     {at('never meet')}\n"
        "  split it into hooks of the stages where each is alive"
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
        "     did you mean 'step'?\n"
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


def test_a_default_makes_a_wish_optional() -> None:
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


def test_providers_of_stages_that_are_never_open_together_make_no_circle() -> None:
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


# ---- no false alarms -------------------------------------------------------------------------------------------------


def test_either_branch_of_a_condition_may_define_a_fixture() -> None:
    class Fits(Extensible):
        def fit(self, fast: bool) -> None:
            with self.staged("fit", {"a": 1} if fast else {"b": 2}):
                if fast:
                    self.fixtures["c"] = 3
                elif self.fixtures.get("d"):
                    self.fixtures["d"] = 4
                with self.staged("inner"):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_a_fixture_of_the_previous_round_is_alive() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                for number in range(3):
                    if number:
                        with self.staged("later"):
                            pass
                    self.fixtures.setdefault("last", number)
                while self.fixtures["last"]:
                    self.once()

        def once(self) -> None:
            with self.staged("late"):
                pass
            self.fixtures.update({"seen": 1})

    assert Fits([ask("later", "last"), ask("late", "seen")]).check() == []


def test_what_a_hook_left_in_the_previous_round_is_alive() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                for number in range(3):
                    if number:
                        with self.staged("late"):
                            pass
                    with self.staged("step"):
                        pass

    class Mean(Extension):
        @provides("mean", stage="fit")
        def post_step(self) -> int:
            return 1

    assert Fits([Mean(), ask("late", "mean")]).check() == []


def test_every_part_of_a_try_statement_is_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                try:
                    self.fixtures["a"] = 1
                except ValueError:
                    self.fixtures["b"] = 1
                else:
                    self.fixtures["c"] = 1
                finally:
                    self.fixtures["d"] = 1
                with self.staged("inner"):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_a_comprehension_calls_methods() -> None:
    class Fits(Extensible):
        def fit(self) -> list[int]:
            with self.staged("fit", {"x": 1}):
                return [self.one() for _ in range(3) if not self.skipped()]

        def one(self) -> int:
            with self.staged("one"):
                return 1

        def skipped(self) -> bool:
            with self.staged("test"):
                return False

    assert Fits([ask("one", "x"), ask("test", "x")]).check() == []


def test_inherited_and_overridden_methods_are_those_that_run() -> None:
    class Faster(Loop):
        def step(self, batch: int) -> None:
            with self.staged("fast", {"quick": batch}):
                super().step(batch)

    assert Faster([ask("forward", "quick", "batch", "epoch_num")]).check() == []


def test_super_calls_follow_the_order_of_the_classes() -> None:
    class Timed(Loop):
        def step(self, batch: int) -> None:
            with self.staged("timed", {"seconds": 1}):
                super().step(batch)

    class Counted(Loop):
        def step(self, batch: int) -> None:
            with self.staged("counted", {"count": 1}):
                super().step(batch)

    class Both(Timed, Counted):
        pass

    assert Both([ask("step", "seconds", "count")]).check() == []


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def test_a_decorated_method_is_read_behind_its_decorator() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.step()

        @passing_on
        @passing_on
        def step(self) -> None:
            with self.staged("step"):
                pass

    fits = Fits([ask("step", "x")])
    assert fits.check() == []
    fits.add_extension(ask("fit", "y"))
    with pytest.raises(CheckError):
        fits.check()


def in_stage(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(self: Any) -> Any:
        with self.staged("decorated", {"given": 1}):
            return function(self)

    return wrapper


def test_a_decorator_that_opens_a_stage_is_not_known() -> None:
    class Fits(Extensible):
        @in_stage
        def fit(self) -> None:
            with self.staged("fit"):
                pass

    (unknown,) = Fits([ask("fit", "given"), ask("decorated", "given")]).check()
    assert unknown.endswith("Fits.fit has a decorator that opens stages or writes fixtures")


def without_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def test_a_method_behind_a_decorator_without_wraps_is_not_known() -> None:
    class Fits(Extensible):
        @without_wraps
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                pass

    (unknown,) = Fits([ask("fit", "x")]).check()
    assert unknown.endswith("hands `*args` to `function`")


def test_a_property_is_a_method() -> None:
    class Fits(Extensible):
        @property
        def model(self) -> int:
            with self.staged("build"):
                return 1

        @functools.cached_property
        def data(self) -> int:
            with self.staged("load"):
                return 1

        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                print(self.model, self.data)

    assert Fits([ask("build", "x"), ask("load", "x")]).check() == []


def test_the_body_of_a_context_manager_method_runs_at_its_yield() -> None:
    class Fits(Extensible):
        @contextmanager
        def opened(self) -> Iterator[None]:
            with self.staged("outer", {"x": 1}):
                yield

        def fit(self) -> None:
            with nullcontext(), self.opened() as _, self.staged("inner"):
                pass

    assert Fits([ask("inner", "x")]).check() == []


def test_a_context_manager_may_be_made_by_another_method() -> None:
    class Fits(Extensible):
        def run(self) -> AbstractContextManager[None]:
            return self._run(1)

        @contextmanager
        def _run(self, number: int) -> Iterator[None]:
            with self.staged("run", {"number": number}):
                yield

        def fit(self) -> None:
            with self.run():
                with self.staged("fit"):
                    pass

    assert Fits([ask("fit", "number")]).check() == []


class Batches(Extensible):
    """Batches made by a generator with a stage around each."""

    def batches(self) -> Iterator[int]:
        with self.staged("source", {"shard": 1}):
            for number in range(3):
                with self.staged("read", {"number": number}):
                    yield number

    def step(self) -> None:
        with self.staged("step"):
            pass


def test_the_body_of_a_for_loop_runs_at_the_yield_of_a_generator_method() -> None:
    class Fits(Batches):
        def fit(self) -> None:
            for _, _batch in enumerate(self.batches()):
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_generator_may_have_a_name_before_the_loop() -> None:
    class Fits(Batches):
        def fit(self) -> None:
            batches = self.batches()
            for _ in batches:
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_comprehension_runs_at_the_yield_of_a_generator_method() -> None:
    class Fits(Batches):
        def fit(self) -> list[None]:
            return [self.step() for _ in self.batches()]  # type: ignore[func-returns-value]

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_a_generator_method_may_hand_on_another_one() -> None:
    class Fits(Batches):
        def twice(self) -> Iterator[int]:
            yield from self.batches()

        def chosen(self) -> Iterator[int]:
            return self.twice()

        def fit(self) -> None:
            for _ in self.chosen():
                self.step()

    assert Fits([ask("step", "shard", "number")]).check() == []


def test_two_generators_in_one_loop_are_both_read() -> None:
    class Fits(Batches):
        def labels(self) -> Iterator[int]:
            with self.staged("labelled", {"label": 1}):
                yield 1

        def fit(self) -> None:
            for _ in zip(self.batches(), self.labels(), strict=False):
                self.step()

    assert Fits([ask("step", "shard", "number", "label")]).check() == []


def test_a_bound_method_handed_on_is_called() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                list(map(self.one, range(3)))

        def one(self, number: int) -> None:
            with self.staged("one"):
                pass

    assert Fits([ask("one", "x")]).check() == []


def test_a_bound_method_under_a_local_name_is_called_where_the_name_is() -> None:
    class Fits(Extensible):
        def fit(self, fast: bool) -> None:
            step = self.fast if fast else self.slow
            with self.staged("fit", {"x": 1}):
                step()

        def fast(self) -> None:
            with self.staged("fast"):
                pass

        def slow(self) -> None:
            with self.staged("slow"):
                pass

    fits = Fits([ask("fast", "x"), ask("slow", "x")])
    assert fits.check() == []
    assert '"path": [\n      "fast"\n    ]' not in fits.explain(format="json")


def test_a_bound_method_kept_by_the_object_may_be_called_anywhere() -> None:
    class Fits(Extensible):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.chosen = self.step
            self.table = {"step": self.other}

        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.chosen()
                self.table["step"]()

        def step(self) -> None:
            with self.staged("step"):
                pass

        def other(self) -> None:
            with self.staged("other"):
                pass

    assert Fits([ask("step", "x"), ask("other", "x")]).check() != []


def test_a_local_dict_may_be_given_to_a_stage() -> None:
    class Fits(Extensible):
        def fit(self, more: dict[str, int]) -> None:
            given = {"a": 1, **{"b": 2}}
            given["c"] = 3
            with self.staged("fit", given, defaults=dict(d=4)):  # noqa: C408
                pass

        def other(self) -> None:
            extra = {"a": 1}
            extra.update({"e": 1})
            with self.staged("other", extra):
                pass

    assert Fits([ask("fit", "a", "b", "c", "d"), ask("other", "e")]).check() == []


def test_a_parameter_may_hold_any_fixtures() -> None:
    class Fits(Extensible):
        def fit(self, given: dict[str, int] | None = None) -> None:
            if given is None:
                given = {"a": 1}
            with self.staged("fit", given):
                pass

    assert Fits([ask("fit", "b")]).check() == []


def test_a_dict_that_somebody_else_may_fill_may_hold_any_fixtures() -> None:
    class Fits(Extensible):
        def fit(self, fill: Callable[[dict[str, int]], None]) -> None:
            given = {"a": 1}
            fill(given)
            with self.staged("fit", given):
                pass

    assert Fits([ask("fit", "b")]).check() == []


def test_update_setdefault_and_define_are_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                with self.staged("inner"):
                    self.fixtures.update({"a": 1})
                    self.fixtures.setdefault("b", 2)
                    self.fixtures.define(name="c", value=3)
                    self.fixtures.define("d", 4, "fit")
                    with self.staged("deep"):
                        pass
                with self.staged("next"):
                    pass

    assert Fits([ask("deep", "a", "b", "c", "d"), ask("next", "d")]).check() == []
    with pytest.raises(CheckError):
        Fits([ask("next", "a")]).check()


def test_several_targets_of_one_assignment_are_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                (self.fixtures["a"], [self.fixtures["b"], *_]) = 1, [2]
                c = self.fixtures["c"] = 3
                with self.staged("inner", {"d": c}):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_the_fixtures_under_another_name_are_not_followed() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                alive = self.fixtures
                alive["a"] = 1
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("inner", "a")]).check()
    assert unknown.endswith("gives `fixtures` another name")


def test_a_mixin_that_is_no_extensible_is_read() -> None:
    class Steps:
        staged: Callable[..., Any]

        def step(self) -> None:
            with self.staged("step"):
                pass

    class Fits(Steps, Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.step()

    assert Fits([ask("step", "x")]).check() == []


def test_a_class_without_source_is_said_and_passed_over() -> None:
    scope = {"Extensible": Extensible, "__name__": "made"}
    exec("class Fits(Extensible):\n    def fit(self):\n        with self.staged('fit'): pass", scope)
    fits: Any = scope["Fits"]
    assert fits([ask("fit", "x"), ask("nothing", "x")]).check() == ["Fits.fit has no source to read"]


def test_methods_that_a_dataclass_writes_are_no_unknown_code() -> None:
    scope = {"Extensible": Extensible, "__name__": "made"}
    exec("def __repr__(self): return 'fits %s' % self.size", scope)
    fits = type("Fits", (Loop,), {"__repr__": scope["__repr__"]})
    assert fits([ask("step", "batch")]).check() == []


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


def test_code_that_gets_the_object_may_do_anything() -> None:
    class Fits(Extensible):
        def fit(self, helper: Callable[..., None]) -> None:
            with self.staged("fit"):
                helper(self)
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("inner", "x"), ask("unknown")]).check()
    assert unknown.endswith("hands `self` to `helper`")


def test_code_that_gets_the_object_in_a_list_may_do_anything() -> None:
    class Fits(Extensible):
        def fit(self, helper: Callable[..., None]) -> None:
            helper([self])

    (unknown,) = Fits([ask("unknown")]).check()
    assert unknown.endswith("hands `[self]` to `helper`")


def test_a_builtin_that_gets_the_object_does_nothing() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                print(self, isinstance(self, Loop))

    with pytest.raises(CheckError):
        Fits([ask("unknown")]).check()


def test_nested_functions_and_lambdas_run_where_they_stand() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):

                def once() -> None:
                    with self.staged("nested"):
                        pass

                run = lambda: self.step()  # noqa: E731
                once()
                run()  # type: ignore[no-untyped-call]

        def step(self) -> None:
            with self.staged("step"):
                pass

    assert Fits([ask("nested", "x"), ask("step", "x")]).check() == []


def test_async_methods_are_read() -> None:
    class Fits(Extensible):
        async def batches(self) -> AsyncIterator[int]:
            with self.staged("source", {"shard": 1}):
                yield 1

        async def fit(self) -> None:
            async for _ in self.batches():
                await self.step()

        async def step(self) -> None:
            with self.staged("step"):
                pass

    assert Fits([ask("step", "shard")]).check() == []


def test_match_statements_and_walrus_expressions_are_read() -> None:
    class Fits(Extensible):
        def fit(self, kind: object) -> None:
            with self.staged("fit"):
                match kind:
                    case int() if self.ready():
                        self.fixtures["a"] = 1
                    case _:
                        self.fixtures["b"] = 1
                if value := self.fixtures.setdefault("c", 1):
                    with self.staged("inner", {"d": value}):
                        pass

        def ready(self) -> bool:
            self.fixtures["e"] = 1
            return True

    assert Fits([ask("inner", "a", "b", "c", "d", "e")]).check() == []


def test_a_stage_on_an_exit_stack_is_said_and_passed_over() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with ExitStack() as stack:
                stack.enter_context(self.staged("entered", {"x": 1}))
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("entered", "x"), ask("inner", "x")]).check()
    assert unknown.endswith("opens a stage outside of a `with` statement")


def test_a_method_that_calls_itself_is_a_root_all_the_same() -> None:
    class Fits(Extensible):
        def fit(self, depth: int) -> None:
            if depth:
                with self.staged("branch", {"x": 1}):
                    self.fit(depth - 1)
            else:
                with self.staged("leaf"):
                    pass

    assert Fits([ask("leaf", "x")]).check() == []


def test_methods_that_call_each_other_are_read() -> None:
    class Fits(Extensible):
        def even(self, number: int) -> None:
            with self.staged("even", {"x": 1}):
                self.odd(number - 1)

        def odd(self, number: int) -> None:
            with self.staged("odd", {"y": 1}):
                self.even(number - 1)

    fits = Fits([ask("even", "y"), ask("odd", "x")])
    assert fits.check() == []
    with pytest.raises(CheckError):
        Fits([ask("even", "z")]).check()


def test_what_is_alive_only_in_a_recursion_is_alive() -> None:
    class Fits(Extensible):
        def outer(self, again: bool) -> None:
            with self.staged("outer"):
                if again:
                    with self.staged("middle", {"x": 1}):
                        self.outer(False)
                else:
                    with self.staged("inner"):
                        pass

    assert Fits([ask("inner", "x")]).check() == []


def test_what_a_hook_writes_through_the_fixtures_is_alive() -> None:
    class Writer(Extension):
        def pre_step(self, fixtures: Any, extensible: Any) -> None:
            fixtures["a"] = 1
            self.more(fixtures)
            extensible.fixtures.define("c", 1, stage="run")

        def more(self, fixtures: Any) -> None:
            fixtures["b"] = 1

    assert Loop([Writer(), ask("forward", "a", "b", "c")]).check() == []


def test_what_a_hook_writes_through_an_extensible_that_it_keeps_is_alive() -> None:
    class Keeps(Extension):
        def __init__(self, kept: list[Extensible]) -> None:
            self.kept = kept

        def pre_step(self) -> None:
            self.kept[0].fixtures["extra"] = 1

    assert Loop([Keeps([]), ask("forward", "extra")]).check() == []


def test_a_bare_staged_is_a_stage() -> None:
    from train_manager import staged

    class Fits(Extensible):
        def fit(self) -> None:
            with staged("fit", {"x": 1}):
                self.fixtures["y"] = 1

    assert Fits([ask("fit", "x")]).check() == []


def test_a_method_that_is_called_by_a_name_made_at_run_time_sees_what_is_alive_there() -> None:
    class Dispatching(Extensible):
        def fit(self, kind: str) -> None:
            with self.staged("fit", {"data": 1}):
                getattr(self, f"step_{kind}")()

        def step_a(self) -> None:
            with self.staged("a"):
                pass

    class Watcher(Extension):
        def pre_a(self, data: int) -> None: ...

    assert len(Dispatching([Watcher()]).check()) == 1


# ---- ways to write a loop that must not alarm -----------------------------------------------------------------------


class Opening(Extensible):
    """Its context manager is returned through two methods."""

    def run(self) -> AbstractContextManager[None]:
        return self._run()

    def _run(self) -> AbstractContextManager[None]:
        return self._new_run()

    @contextmanager
    def _new_run(self) -> Iterator[None]:
        with self.staged("run", {"lr": 1}):
            yield


def test_a_context_manager_that_is_returned_through_two_methods_is_followed() -> None:
    class Fitting(Opening):
        def fit(self) -> None:
            with self.run(), self.staged("own"):
                pass

    assert Fitting([Extension.of(post_own=lambda lr: None)]).check() == []


def test_a_private_method_is_followed() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"lr": 1}):
                self.__step()

        def __step(self) -> None:
            with self.staged("step"):
                pass

    assert Loop([Extension.of(post_step=lambda lr: None)]).check() == []


def test_a_class_made_by_exec_without_a_module_is_honestly_unknown() -> None:
    made: dict[str, Any] = {}
    exec(
        "from train_manager import Extensible\nclass E(Extensible):\n"
        " def work(self):\n  with self.staged('w'):\n   pass",
        made,
    )
    assert made["E"]([Extension.of(post_w=lambda: None)]).check() == ["E.work has no source to read"]


def test_a_nested_function_counts_where_its_name_is_used() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            def step() -> None:
                with self.staged("step"):
                    pass

            other: Callable[[], None] = lambda: self.inner()  # noqa: E731
            third = partial(self.inner)
            with self.staged("fit", {"lr": 1}):
                step()
                other()
                third()

        def inner(self) -> None:
            with self.staged("inner"):
                pass

    watching = Extension.of(post_step=lambda lr: None, post_inner=lambda lr: None)
    assert Loop([watching]).check() == []


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


def test_a_fixture_on_demand_that_is_asked_for_before_what_it_is_made_of_is_found() -> None:
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


def test_a_method_that_is_called_by_name_is_held_against_what_is_alive_there() -> None:
    class Loop(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"inputs": 1}):
                self.call_by_name(self.forward)

        def forward(self, inputz: int, other: int = 0) -> int:
            return inputz + other

    with pytest.raises(CheckError) as error:
        Loop().check()
    assert "Loop.forward wants 'inputz', which is never alive where it is called" in str(error.value)
    assert str(error.value).endswith("did you mean 'inputs'?")
