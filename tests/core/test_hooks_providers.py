"""Provided fixtures: computed when they are first asked for, once for each stage, cleaned up at its end."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from train_manager import Extensible, Extension, fixture, modifies
from train_manager.errors import FixtureExists, FixtureNotFound, HookError, OrderError, StageError

At = Callable[[str], str]


class Norm(Extension):
    """Provides `norm` in `step`, and counts."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @fixture("step")
    def norm(self, x: int) -> Iterator[int]:
        self.log.append(f"norm of {x}")
        yield x * x
        self.log.append("clean-up")


def asking(number: int) -> list[Extension]:
    return [Extension.of(post_step=lambda norm: None) for _ in range(number)]


class Worker(Extensible):
    """One stage with an x."""

    def work(self, x: int = 3) -> None:
        with self.staged("step", {"x": x}):
            pass


# ---- computed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hooks", "times"), [(0, 0), (1, 1), (5, 1)])
def test_it_is_computed_once_for_each_stage_if_anybody_asks(hooks: int, times: int) -> None:
    norm = Norm()
    worker = Worker([norm, *asking(hooks)])
    worker.work(3)
    worker.work(4)
    assert norm.log == ["norm of 3", "clean-up"] * times + ["norm of 4", "clean-up"] * times


def test_one_that_is_modified_before_anybody_asks_is_not_computed() -> None:
    worker = Worker([norm := Norm()])
    with worker.staged("step", {"x": 1}):
        worker.fixtures.modify("norm", 7)
        assert worker.fixtures["norm"] == 7
    assert norm.log == []


def test_it_is_computed_in_the_middle_of_the_stage_from_what_is_alive_then() -> None:
    worker = Worker([Norm()])
    with worker.staged("step", {"x": 1}):
        worker.fixtures.modify("x", 5)
        assert worker.fixtures["norm"] == 25


def test_it_is_never_computed_again_even_if_what_it_was_made_of_changes() -> None:
    worker = Worker([Norm()])
    with worker.staged("step", {"x": 2}):
        assert worker.fixtures["norm"] == 4
        worker.fixtures.modify("x", 5)
        assert worker.fixtures["norm"] == 4


def test_a_stage_inside_asks_for_the_one_of_its_outer_stage() -> None:
    norm = Norm()
    worker = Worker([norm, Extension.of(pre_inner=lambda norm: None)])
    with worker.staged("step", {"x": 2}):
        with worker.staged("inner"):
            pass
        assert norm.log == ["norm of 2"]
        assert worker.fixtures["norm"] == 4
    assert norm.log == ["norm of 2", "clean-up"]


def test_looking_which_fixtures_there_are_computes_nothing() -> None:
    norm = Norm()
    worker = Worker([norm])
    with worker.staged("step", {"x": 2}):
        assert "norm" in worker.fixtures
        assert list(worker.fixtures) == ["x", "norm"]
        assert len(worker.fixtures) == 2
        assert repr(worker.fixtures) == "<fixtures x, norm>"
    assert norm.log == []
    assert "norm" not in worker.fixtures


def test_kwargs_compute_nothing_and_get_what_has_been_computed() -> None:
    seen: list[dict[str, int]] = []
    norm = Norm()
    taking = Extension.of(post_step=lambda **rest: seen.append(rest))
    Worker([norm, taking]).work()
    assert (seen, norm.log) == ([{"x": 3}], [])
    Worker([norm, Extension.of(pre_step=lambda norm: None), taking]).work()
    assert seen[1] == {"x": 3, "norm": 9}


def test_a_default_is_not_used_where_it_can_be_computed() -> None:
    seen = []
    Worker([Norm(), Extension.of(pre_step=lambda norm=0: seen.append(norm))]).work()
    assert seen == [9]


def test_a_hook_of_every_stage_runs_where_it_can_be_computed() -> None:
    seen = []
    worker = Worker([Norm(), Extension.of(post_stage=lambda norm, stage: seen.append((stage.name, norm)))])
    with worker.staged("run"):
        worker.work()
    assert seen == [("step", 9)]


def test_a_recursion_has_its_own() -> None:
    norm = Norm()
    worker = Worker([norm])
    with worker.staged("step", {"x": 2}):
        with worker.staged("step", {"x": 3}):
            assert worker.fixtures["norm"] == 9
        assert norm.log == ["norm of 3", "clean-up"]
        assert worker.fixtures["norm"] == 4
        with worker.staged("step", {"x": 5}):
            assert worker.fixtures["norm"] == 25
        assert worker.fixtures["norm"] == 4


def test_one_may_ask_for_another() -> None:
    class Both(Extension):
        @fixture("step")
        def double(self, square: int) -> int:
            return 2 * square

        @fixture("run")
        def offset(self) -> int:
            return 1

        @fixture("step")
        def square(self, x: int, offset: int) -> int:
            return x * x + offset

    worker = Worker([Both()])
    with worker.staged("run"), worker.staged("step", {"x": 3}):
        assert worker.fixtures["double"] == 20


def test_a_method_of_the_extensible_can_be_one() -> None:
    class Own(Worker):
        @fixture("step")
        def norm(self, x: int) -> int:
            return -x

    worker = Own()
    with worker.staged("step", {"x": 3}):
        assert worker.fixtures["norm"] == -3


def test_it_can_be_called_by_hand() -> None:
    assert next(Norm().norm(x=4)) == 16


# ---- cleaned up ----------------------------------------------------------------------------------------------------


def generator(worker: Worker) -> Generator[None]:
    with worker.staged("step", {"x": 3}):
        yield


@pytest.mark.parametrize("exit_", ["success", "error", "break", "closed generator", "failing hook"])
def test_the_clean_up_runs_once_however_the_stage_ends(exit_: str) -> None:
    norm = Norm()
    worker = Worker([norm, Extension.of(pre_step=lambda norm: None)])
    if exit_ == "failing hook":
        worker.add_extension(post_step=lambda: 1 / 0)
    with contextlib.suppress(ValueError, ZeroDivisionError):
        if exit_ == "closed generator":
            opened = generator(worker)
            next(opened)
            opened.close()
        for _ in range(2):
            if exit_ == "closed generator":
                break
            with worker.staged("step", {"x": 3}):
                if exit_ == "error":
                    raise ValueError
                if exit_ == "break":
                    break
            break
    assert norm.log == ["norm of 3", "clean-up"]
    assert dict(worker.fixtures) == {}


def test_clean_ups_run_in_reverse_and_the_fixtures_are_still_alive() -> None:
    log: list[tuple[str, int]] = []

    class Both(Extension):
        @fixture("step")
        def first(self, x: int) -> Iterator[int]:
            yield x
            log.append(("first", x))

        @fixture("step")
        def second(self, first: int, fixtures: Any) -> Iterator[int]:
            yield first
            log.append(("second", fixtures["first"]))

    worker = Worker([Both()])
    with worker.staged("step", {"x": 3}):
        assert worker.fixtures["second"] == 3
    assert log == [("second", 3), ("first", 3)]


def test_a_clean_up_runs_before_the_around_hooks_that_were_there_before_it() -> None:
    log: list[str] = []
    norm = Norm()
    norm.log = log

    class Around(Extension):
        def around_step(self) -> Iterator[None]:
            log.append("enter")
            yield
            log.append("leave")

    Worker([norm, Around(), *asking(1)]).work()
    assert log == ["enter", "norm of 3", "clean-up", "leave"]


def test_one_asked_for_during_a_clean_up_is_cleaned_up_too() -> None:
    norm = Norm()

    class Around(Extension):
        def around_step(self, fixtures: Any) -> Iterator[None]:
            yield
            fixtures["norm"]

    Worker([norm, Around()]).work()
    assert norm.log == ["norm of 3", "clean-up"]


def test_an_error_in_a_clean_up_comes_out_and_the_other_clean_ups_run() -> None:
    norm = Norm()

    class Broken(Extension):
        @fixture("step")
        def broken(self) -> Iterator[int]:
            yield 1
            raise ValueError("no room")

    worker = Worker([norm, Broken(), Extension.of(pre_step=lambda norm, broken: None)])
    with pytest.raises(ValueError, match="no room") as error:
        worker.work()
    assert error.value.__notes__ == ["in fixture Broken.broken of extension 'broken', at stage step"]
    assert norm.log == ["norm of 3", "clean-up"]


def test_nothing_keeps_a_value_after_its_stage() -> None:
    class Value:
        pass

    class Values(Extension):
        @fixture("step")
        def value(self) -> Iterator[Value]:
            yield Value()

    worker = Worker([Values()])
    gc.disable()
    try:
        with worker.staged("step", {"x": 3}):
            reference = weakref.ref(worker.fixtures["value"])
            assert reference() is not None
        assert reference() is None
    finally:
        gc.enable()


# ---- modified, overridden, refused -----------------------------------------------------------------------------------


def test_modifying_it_before_anybody_asked_spares_the_computation() -> None:
    norm = Norm()
    worker = Worker([norm])
    with worker.staged("step", {"x": 3}):
        with worker.staged("inner"):
            worker.fixtures.modify("norm", 1)
        assert worker.fixtures["norm"] == 1
    assert norm.log == []
    assert "norm" not in worker.fixtures


def test_a_hook_may_modify_it() -> None:
    class Half(Extension):
        @modifies("norm")
        def pre_step(self, norm: int) -> float:
            return norm / 2

    worker = Worker([Norm(), Half()])
    with worker.staged("step", {"x": 3}):
        assert worker.fixtures["norm"] == 4.5


def test_another_one_may_take_its_place_whatever_the_order_of_registration() -> None:
    class Better(Extension):
        @fixture("step", override=True)
        def norm(self, x: int) -> int:
            return -x

    for extensions in ([Norm(), Better()], [Better(), Norm()]):
        worker = Worker(extensions)
        with worker.staged("step", {"x": 3}):
            assert worker.fixtures["norm"] == -3


def test_a_second_one_of_the_same_name_and_stage_is_refused(at: At) -> None:
    class Other(Extension):
        @fixture("step")  # a second norm
        def norm(self) -> int:
            return 1

    class First(Extension):
        @fixture("step")  # a first norm
        def norm(self) -> int:
            return 1

    worker = Worker([First()])
    with pytest.raises(OrderError) as error:
        worker.add_extension(Other())
    assert str(error.value) == (
        "First.norm (extension 'first') and Other.norm (extension 'other') both provide 'norm' in stage 'step'\n"
        f"  defined at   {at('a first norm')}\n"
        f"  asked at     {at('a second norm')}\n"
        '  remove one, or let one replace the other: @fixture("step", override=True)'
    )


def test_two_extensions_of_a_class_that_provide_one_name_are_told_to_be_one() -> None:
    class Norms(Extension):
        @fixture("step")
        def norm(self) -> int:
            return 1

    with pytest.raises(OrderError) as error:
        Worker([Norms(), Norms()]).check()
    assert str(error.value).endswith("\n  let one Norms do what both do")


def test_defining_it_is_refused_and_says_who_provides_it(at: At) -> None:
    class Provides(Extension):
        @fixture("step")  # provided
        def norm(self) -> int:
            return 1

    worker = Worker([Provides()])
    with pytest.raises(FixtureExists) as error, worker.staged("step"):
        worker.fixtures["norm"] = 1  # defined
    assert str(error.value).splitlines()[:3] == [
        "test_defining_it_is_refused_and_says_who_provides_it defines 'norm', which stage 'step' has defined already",
        f"  defined at   {at('provided')}",
        f"  asked at     {at('defined')}",
    ]


def test_one_that_is_alive_already_is_refused_as_the_stage_opens_and_nothing_stays(at: At) -> None:
    class Two(Extension):
        @fixture("step")
        def fresh(self) -> int:
            return 1

        @fixture("step")  # alive already
        def taken(self) -> int:
            return 1

    worker = Worker([Two()])
    with worker.staged("run", {"taken": 0}):
        with pytest.raises(FixtureExists) as error, worker.staged("step"):
            pass
        assert dict(worker.fixtures) == {"taken": 0}
    assert dict(worker.fixtures) == {}
    assert str(error.value).startswith("Two.taken defines 'taken', which stage 'run' has defined already")
    assert f"  asked at     {at('alive already')}\n" in str(error.value)


def test_what_asks_for_something_shorter_lived_is_refused_with_the_chain_of_requests(at: At) -> None:
    class Long(Extension):
        @fixture("run")  # long
        def total(self, loss: float) -> float:
            return loss

        @fixture("step")  # short
        def share(self, total: float) -> float:
            return total

        def post_step(self, share: float) -> None: ...  # the asker

    worker = Worker([Long()])
    with pytest.raises(FixtureNotFound) as error, worker.staged("run"), worker.staged("step", {"loss": 0.5}):
        pass
    assert str(error.value) == (
        "Long.total lives as long as stage 'run', but wants 'loss', which ends earlier, with stage 'step'\n"
        f"  asked at     {at('long')}\n"
        f"  requested by Long.post_step ({at('the asker')})\n"
        f"  requested by Long.share ({at('short')})\n"
        "  open stages  run > step\n"
        "  alive        loss, share, total\n"
        '  provide it in the shorter-lived stage: @fixture("step")'
    )
    assert error.value.__notes__[-1] == "in hook Long.post_step of extension 'long', at stage run > step"


def test_what_asks_for_itself_in_a_cycle_is_refused_with_the_chain_of_requests(at: At) -> None:
    class Circle(Extension):
        @fixture("step")  # hen
        def hen(self, egg: int) -> int:
            return egg

        @fixture("step")  # egg
        def egg(self, hen: int) -> int:
            return hen

    worker = Extensible([Circle()])
    with worker.staged("step"):
        with pytest.raises(OrderError) as error:
            worker.fixtures["hen"]
        assert str(error.value) == (
            "Circle.hen asks for itself in a cycle\n"
            f"  asked at     {at('hen')}\n"
            f"  requested by Circle.hen ({at('hen')})\n"
            f"  requested by Circle.egg ({at('egg')})\n"
            f"  requested by Circle.hen ({at('hen')})\n"
            "  open stages  step\n"
            "  let one of them be computed without the others"
        )
        assert list(worker.fixtures) == ["hen", "egg"]


def test_what_is_not_there_is_refused_with_the_chain_of_requests(at: At) -> None:
    class Chain(Extension):
        @fixture("step")  # end of the chain
        def one(self, nowhere: int) -> int:
            return nowhere

        @fixture("step")  # start of the chain
        def two(self, one: int) -> int:
            return one

    worker = Worker([Chain()])
    with pytest.raises(FixtureNotFound) as error, worker.staged("step"):
        worker.fixtures["two"]
    assert str(error.value) == (
        "Chain.one wants 'nowhere', which no open stage provides\n"
        f"  asked at     {at('end of the chain')}\n"
        f"  requested by Chain.two ({at('start of the chain')})\n"
        "  open stages  step\n"
        "  alive        one, two\n"
        "  no stage has defined it so far; a parameter with a default may be absent"
    )


def test_one_that_failed_is_computed_again_when_it_is_asked_for_again() -> None:
    class Flaky(Extension):
        calls = 0

        @fixture("step")
        def flaky(self) -> int:
            self.calls += 1
            return 1 // (self.calls - 1)

    worker = Worker([Flaky()])
    with worker.staged("step"):
        with pytest.raises(ZeroDivisionError):
            worker.fixtures["flaky"]
        assert worker.fixtures["flaky"] == 1


def test_one_may_not_open_a_stage() -> None:
    class Opens(Extension):
        @fixture("step")
        def opens(self, extensible: Worker) -> int:
            extensible.work()
            return 1

    worker = Worker([Opens()])
    with worker.staged("step"):
        with pytest.raises(StageError, match=r"Opens.opens opens stage 'step' of the extensible that is calling it"):
            worker.fixtures["opens"]


def test_one_that_writes_itself_meanwhile_is_computed_all_the_same() -> None:
    class Own(Extension):
        @fixture("step")
        def own(self, fixtures: Any) -> int:
            fixtures.modify("own", 1)
            return 2

    worker = Worker([Own()])
    with worker.staged("step"):
        assert worker.fixtures["own"] == 2
    assert list(worker.fixtures) == []


@pytest.mark.parametrize("times", [0, 2])
def test_one_that_does_not_yield_once_is_refused(times: int, at: At) -> None:
    class Wrong(Extension):
        @fixture("step")  # not once
        def wrong(self) -> Iterator[int]:
            yield from range(times)

    worker = Worker([Wrong()])
    with pytest.raises(HookError) as error, worker.staged("step"):
        worker.fixtures["wrong"]
    assert str(error.value) == (
        f"Wrong.wrong {'yields more than once' if times else 'did not yield a value'}\n"
        f"  asked at     {at('not once')}\n"
        "  a fixture with clean-up must have one `yield value`; the rest runs when the stage ends"
    )


@pytest.mark.parametrize("name", ["stage", "fixtures", "extensible", "exc_value"])
def test_a_name_that_is_always_there_is_refused(name: str) -> None:
    def method(self: object) -> int:
        return 1

    wrong = type("Wrong", (Extension,), {name: fixture("step")(method)})
    with pytest.raises(HookError, match=f"Wrong.{name} provides '{name}', which is always there"):
        Worker([wrong()])


def test_it_cannot_have_the_name_of_a_hook() -> None:
    class Wrong(Extension):
        @fixture("step")
        def pre_step(self) -> int:
            return 1

    with pytest.raises(HookError, match=r"Wrong.pre_step is a @fixture, but has the name of a hook"):
        Worker([Wrong()])


def test_it_cannot_be_async_or_without_self() -> None:
    class Waits(Extension):
        @fixture("step")
        async def waits(self) -> int:
            return 1

    class Selfless(Extension):
        @fixture("step")
        def selfless(x: int) -> int:  # type: ignore[misc]  # noqa: N805
            return x

    with pytest.raises(HookError, match=r"Waits.waits is async"):
        Worker([Waits()])
    with pytest.raises(HookError, match=r"Selfless.selfless must take `self` first, but takes 'x'"):
        Worker([Selfless()])
