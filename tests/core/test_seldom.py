"""Fixtures that wait in their stage until something asks for them: to users they are as any other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train_manager import Extensible, Extension, FixtureExists, FixtureNotFound, HookError, fixture
from train_manager.testing import Recorder


class Worker(Extensible):
    """Opens "work" with a fixture that few hooks ask for, and another stage inside."""

    def work(self, value: Any = 3, inside: Callable[[Worker], Any] = lambda worker: None) -> Any:
        with self.staged("work", {"size": 2}, seldom={"number": value}):
            return inside(self)

    def inner(self, given: dict[str, Any], *, seldom: bool = False) -> None:
        with self.staged("inner", None if seldom else given, seldom=given if seldom else None):
            pass

    def outer(self) -> None:
        with self.staged("outer", {"number": 1}):
            self.work()


READS: dict[str, Callable[[Any], Any]] = {
    "fixtures[name]": lambda fixtures: fixtures["number"],
    "get": lambda fixtures: fixtures.get("number"),
    "dict": lambda fixtures: dict(fixtures)["number"],
    "values": lambda fixtures: max(fixtures.values()),
    "setdefault": lambda fixtures: fixtures.setdefault("number", 5),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_it_is_read_like_any_other(read: Callable[[Any], Any]) -> None:
    assert Worker().work(3, lambda worker: read(worker.fixtures)) == 3


def test_it_is_alive() -> None:
    assert Worker().work(3, lambda worker: "number" in worker.fixtures)


def test_iteration_gives_its_name() -> None:
    assert Worker().work(3, lambda worker: sorted(worker.fixtures)) == ["number", "size"]


def test_it_counts_in_the_length() -> None:
    assert Worker().work(3, lambda worker: len(worker.fixtures)) == 2


@pytest.mark.parametrize(
    "hook",
    [
        lambda number: seen.append(number),
        lambda number=5: seen.append(number),
        lambda *, number: seen.append(number),
        lambda **everything: seen.append(everything["number"]),
    ],
    ids=["required", "with a default", "by name only", "**kwargs"],
)
@pytest.mark.parametrize("point", ["pre_work", "post_work"])
def test_a_hook_is_given_it(point: str, hook: Callable[..., Any]) -> None:
    seen.clear()
    Worker([Extension.of(**{point: hook})]).work()

    assert seen == [3]


seen: list[Any] = []


def test_a_hook_that_was_looked_at_before_the_first_opening_is_given_it() -> None:
    seen.clear()
    worker = Worker([Extension.of(post_work=lambda number: seen.append(number))])
    worker.explain()
    worker.work()

    assert seen == [3]


def test_a_modified_value_takes_its_place() -> None:
    def modified(worker: Worker) -> Any:
        worker.fixtures.modify("number", 4)
        return worker.fixtures["number"]

    assert Worker().work(3, modified) == 4


def test_a_second_definition_is_refused() -> None:
    def again(worker: Worker) -> None:
        worker.fixtures["number"] = 4

    with pytest.raises(FixtureExists, match="'number'"):
        Worker().work(3, again)


@pytest.mark.parametrize("seldom", [False, True])
def test_a_further_write_of_several_is_refused(seldom: bool) -> None:
    with pytest.raises(FixtureExists, match="'number'"):
        Worker().work(3, lambda worker: worker.fixtures.define_all({"number": 4}, seldom=seldom))


def test_a_stage_inside_may_not_be_given_it() -> None:
    with pytest.raises(FixtureExists, match="'number'"):
        Worker().work(3, lambda worker: worker.inner({"number": 4}))


def test_a_name_that_lives_around_the_stage_is_refused() -> None:
    with pytest.raises(FixtureExists, match="'number'"):
        Worker().outer()


def test_a_name_that_is_lazy_around_the_stage_is_refused() -> None:
    class Provider(Extension):
        @fixture("outer")
        def number(self) -> int:
            return 1

    class Outer(Worker):
        def outer(self) -> None:
            with self.staged("outer"):
                self.work()

    with pytest.raises(FixtureExists, match="'number'"):
        Outer([Provider()]).outer()


def test_it_dies_with_its_stage() -> None:
    worker = Worker()
    worker.work()

    with pytest.raises(FixtureNotFound, match="which ended with stage 'work'"), worker.staged("after"):
        worker.fixtures["number"]


class Value:
    """Can be referred to weakly."""


def test_its_value_is_not_kept_after_the_stage() -> None:
    value = Value()
    kept = weakref.ref(value)
    worker = Worker()
    with worker.staged("work", seldom={"number": value}) as stage:
        del value
    gc.collect()

    assert (kept(), stage.is_open) == (None, False)


def test_its_value_is_not_kept_after_a_failure() -> None:
    value = Value()
    kept = weakref.ref(value)
    with pytest.raises(ValueError, match="in the body"), Worker().staged("work", seldom={"number": value}):
        del value
        raise ValueError("in the body")
    gc.collect()

    assert kept() is None


def test_a_stage_inside_itself_has_its_own() -> None:
    class Countdown(Extensible):
        def count(self, number: int) -> list[int]:
            with self.staged("count", seldom={"number": number}):
                inner = self.count(number - 1) if number > 1 else []
                return [*inner, self.fixtures["number"]]

    assert Countdown().count(3) == [1, 2, 3]


def test_a_stage_inside_itself_hides_it_without_one_of_its_own() -> None:
    class Once(Extensible):
        def count(self, is_inner: bool = False) -> bool:
            with self.staged("count", seldom=None if is_inner else {"number": 1}):
                return "number" in self.fixtures if is_inner else self.count(True)

    assert not Once().count()


def test_the_stage_keeps_it() -> None:
    worker = Worker()
    with worker.staged("work", seldom={"number": 3}) as stage:
        stage.keep("number")

    assert stage.kept == {"number": 3}


def test_it_is_among_what_the_stage_owned() -> None:
    recorder = Recorder()
    Worker([recorder]).work()

    assert recorder.born["work",] == {"size", "number"}


def test_several_are_defined_in_one_call() -> None:
    def written(worker: Worker) -> dict[str, Any]:
        worker.fixtures.define_all({"a": 1, "b": 2})
        return dict(worker.fixtures)

    assert Worker().work(3, written) == {"size": 2, "number": 3, "a": 1, "b": 2}


@pytest.mark.parametrize("seldom", [False, True])
def test_several_are_refused_where_no_stage_is_open(seldom: bool) -> None:
    with pytest.raises(Exception, match="no stage is open"):
        Worker().fixtures.define_all({"a": 1}, seldom=seldom)


def test_an_undeclared_write_of_several_is_refused_if_strict() -> None:
    class Strict(Worker):
        strict = True

    def write(fixtures: Any) -> None:
        getattr(fixtures, "define_" + "all")({"a": 1})  # not seen by the check before the first stage

    with pytest.raises(HookError, match="'a'"):
        Strict([Extension.of(post_work=write)]).work()


def test_a_seldom_one_of_a_stage_that_is_open_for_the_first_time_is_given_to_its_post_hooks() -> None:
    """Its hooks are called by a function that was made before the name was known."""
    seen.clear()
    worker = Worker([Extension.of(post_work=lambda late: seen.append(late))])
    worker.work(3, lambda worker: worker.fixtures.define_all({"late": 7}, seldom=True))
    worker.work(3, lambda worker: worker.fixtures.define_all({"late": 8}, seldom=True))

    assert seen == [7, 8]


def test_a_lazy_fixture_that_nothing_asks_for_is_not_computed() -> None:
    class Lazy(Extension):
        @fixture("work")
        def square(self, number: int) -> int:
            seen.append(number)
            return number**2

    seen.clear()
    worker = Worker([Lazy()])
    worker.work()
    assert seen == []

    assert worker.work(3, lambda worker: worker.fixtures["square"]) == 9


NAMES = ("a", "b", "c")
stages = st.lists(
    st.tuples(
        st.sampled_from(["outer", "inner", "work"]),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), max_size=2),
        st.lists(st.tuples(st.sampled_from(["read", "modify", "define", "names"]), st.sampled_from(NAMES)), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@given(stages)
def test_what_is_seen_does_not_depend_on_which_are_seldom(program: list[Any]) -> None:
    assert seen_in(program, seldom=True) == seen_in(program, seldom=False)


def seen_in(program: list[Any], *, seldom: bool) -> list[Any]:
    """Open the stages inside each other, and return what each action found."""
    worker, found = Extensible(), list[Any]()

    def open_rest(rest: list[Any]) -> None:
        if not rest:
            return
        stage, fixtures, actions = rest[0]
        given, waiting = ({}, fixtures) if seldom else (fixtures, None)
        with worker.staged(stage, given, seldom=waiting):
            for action in actions:
                found.append(done(worker, *action))
            open_rest(rest[1:])
            found.append(sorted(worker.fixtures.items()))

    try:
        open_rest(program)
    except FixtureExists as error:
        found.append(error.name)
    found.append(sorted(worker.fixtures))
    return found


def done(worker: Extensible, what: str, name: str) -> Any:
    """Do one action, and return what is seen of it."""
    try:
        if what == "read":
            return worker.fixtures[name]
        if what == "modify":
            return worker.fixtures.modify(name, 10)
        if what == "define":
            return worker.fixtures.define(name, 11)
        return sorted(worker.fixtures)
    except (FixtureExists, FixtureNotFound) as error:
        return type(error), error.name
