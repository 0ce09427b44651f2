from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest

from train_manager import Extensible, Extension, Fixtures
from train_manager.errors import FixtureExists, FixtureNotFound, NoStageOpen, StageError

At = Callable[[str], str]


class Value:
    """Something that a weak reference can watch."""


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_fixtures_are_read_like_a_dict() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": 1, "y": 2}):
        fixtures = extensible.fixtures
        assert fixtures["x"] == 1
        assert fixtures.get("z") is None
        assert fixtures.get("z", 3) == 3
        assert "x" in fixtures
        assert "z" not in fixtures
        assert (list(fixtures), len(fixtures), dict(fixtures)) == (["x", "y"], 2, {"x": 1, "y": 2})


def test_what_is_always_there_can_be_read_but_is_not_listed() -> None:
    extensible = Extensible()
    fixtures = extensible.fixtures
    assert fixtures["fixtures"] is fixtures
    assert fixtures["extensible"] is extensible
    assert "stage" in fixtures
    assert list(fixtures) == []
    assert len(fixtures) == 0


def test_fixtures_of_the_outer_stage_are_visible_in_the_inner_one_not_the_other_way_round() -> None:
    extensible = Extensible()
    with extensible.staged("run", {"outer": 1}):
        with extensible.staged("step", {"inner": 2}):
            assert dict(extensible.fixtures) == {"outer": 1, "inner": 2}
        assert dict(extensible.fixtures) == {"outer": 1}


def test_fixtures_show_their_names_not_their_values() -> None:
    extensible = Extensible()
    assert repr(extensible.fixtures) == "<fixtures none>"
    with extensible.staged("step", {"x": 1, "y": 2}):
        assert repr(extensible.fixtures) == "<fixtures x, y>"


def test_a_name_that_never_existed_is_refused_with_the_nearest_live_name(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("run"), extensible.staged("step", {"losses": 1, "batch": 2}):
        with pytest.raises(FixtureNotFound) as error:
            extensible.fixtures["loss"]  # read a near miss
    assert str(error.value) == (
        "test_a_name_that_never_existed_is_refused_with_the_nearest_live_name reads 'loss', "
        "which no open stage provides\n"
        f"  asked at     {at('read a near miss')}\n"
        "  open stages  run > step\n"
        "  alive        batch, losses\n"
        "  did you mean 'losses'?"
    )
    assert (error.value.name, error.value.nearest) == ("loss", ("losses",))
    assert error.value.asked_by == "test_a_name_that_never_existed_is_refused_with_the_nearest_live_name"


def test_a_near_name_that_lived_in_a_closed_stage_is_told_with_its_stage(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("run"):
        with extensible.staged("train_backward", {"grad_norms": 1}):
            pass
        with pytest.raises(FixtureNotFound) as error:
            extensible.fixtures["grad_norm"]  # read what lived elsewhere
    assert str(error.value) == (
        "test_a_near_name_that_lived_in_a_closed_stage_is_told_with_its_stage reads 'grad_norm', "
        "which no open stage provides\n"
        f"  asked at     {at('read what lived elsewhere')}\n"
        "  open stages  run\n"
        "  alive        nothing\n"
        "  did you mean 'grad_norms'? it lived in stage 'train_backward', which has closed"
    )


def test_a_dead_name_is_refused_with_the_stage_that_it_ended_with(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("step", {"loss": 1}):
        pass
    with pytest.raises(FixtureNotFound) as error:
        extensible.fixtures["loss"]  # read a dead name
    assert str(error.value) == (
        "test_a_dead_name_is_refused_with_the_stage_that_it_ended_with reads 'loss', which ended with stage 'step'\n"
        f"  asked at     {at('read a dead name')}\n"
        "  open stages  none\n"
        "  alive        nothing\n"
        "  ask for it inside stage 'step', or define it in a stage around both"
    )


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(FixtureNotFound) as error:
        Extensible().fixtures["loss"]
    assert error.value.nearest == ()
    assert str(error.value).endswith("  no stage has defined it so far; a parameter with a default may be absent")


def test_a_name_that_a_recursion_hides_is_told_as_hidden(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"node": 1}), extensible.staged("visit"):
        with pytest.raises(FixtureNotFound) as error:
            extensible.fixtures["node"]  # read a hidden name
    assert str(error.value) == (
        "test_a_name_that_a_recursion_hides_is_told_as_hidden reads 'node', "
        "which the inner stage of a recursion hides\n"
        f"  asked at     {at('read a hidden name')}\n"
        "  open stages  visit > visit\n"
        "  alive        nothing\n"
        "  it comes back when the inner stage ends; pass it on with `staged(name, {...})`"
    )


# ---- defining --------------------------------------------------------------------------------------------------------


def test_a_fixture_belongs_to_the_innermost_stage() -> None:
    extensible = Extensible()
    with extensible.staged("run"):
        with extensible.staged("step"):
            extensible.fixtures["x"] = 1
            assert extensible.fixtures["x"] == 1
        assert "x" not in extensible.fixtures


def test_a_live_name_is_not_defined_again_and_the_error_says_who_defined_it_and_where(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("run"):
        extensible.fixtures["x"] = 1  # first definition
        with extensible.staged("step"):
            with pytest.raises(FixtureExists) as error:
                extensible.fixtures["x"] = 2  # second definition
        assert extensible.fixtures["x"] == 1
    assert str(error.value) == (
        "test_a_live_name_is_not_defined_again_and_the_error_says_who_defined_it_and_where defines 'x', "
        "which stage 'run' has defined already\n"
        f"  defined at   {at('first definition')}\n"
        f"  asked at     {at('second definition')}\n"
        "  open stages  run > step\n"
        "  to change it: fixtures.modify('x', value); for a value of your own: another name"
    )


def test_a_stage_that_would_redefine_a_live_name_does_not_open(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("run", {"x": 1}):  # opened with x
        with pytest.raises(FixtureExists) as error, extensible.staged("step", {"new": 0, "x": 2}):  # again with x
            pass
        assert dict(extensible.fixtures) == {"x": 1}
        assert extensible.fixtures["stage"].path == ("run",)
    assert error.value.defined_at == at("opened with x")
    assert error.value.asked_at == at("again with x")


def test_defaults_are_defined_only_where_the_name_is_not_alive() -> None:
    extensible = Extensible()
    with extensible.staged("run", {"x": 1}):
        with extensible.staged("step", {"y": 2}, defaults={"x": -1, "y": -2, "z": -3}):
            assert dict(extensible.fixtures) == {"x": 1, "y": 2, "z": -3}
        assert dict(extensible.fixtures) == {"x": 1}


def test_a_value_can_be_given_to_an_enclosing_stage() -> None:
    extensible = Extensible()
    with extensible.staged("step"):
        with extensible.staged("forward"):
            extensible.fixtures.define("prediction", 1, stage="step")
        assert extensible.fixtures["prediction"] == 1
    assert "prediction" not in extensible.fixtures


def test_a_value_cannot_be_given_to_a_stage_that_is_not_open(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("run"), extensible.staged("train_step"):
        with pytest.raises(StageError) as error:
            extensible.fixtures.define("x", 1, stage="train_steps")  # define elsewhere
    assert str(error.value) == (
        "test_a_value_cannot_be_given_to_a_stage_that_is_not_open defines a fixture in stage 'train_steps', "
        "which is not open\n"
        f"  asked at     {at('define elsewhere')}\n"
        "  open stages  run > train_step\n"
        "  did you mean 'train_step'?"
    )


def test_setdefault_defines_only_what_is_not_alive() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        assert extensible.fixtures.setdefault("x", 5) == 1
        assert extensible.fixtures.setdefault("y", 5) == 5
        assert dict(extensible.fixtures) == {"x": 1, "y": 5}


@pytest.mark.parametrize("name", ["fixtures", "stage", "extensible", "exc_type", "exc_value", "traceback"])
def test_a_reserved_name_cannot_be_written(name: str, at: At) -> None:
    extensible = Extensible()
    with extensible.staged("step"):
        with pytest.raises(FixtureExists) as error:
            extensible.fixtures[name] = 1  # write a reserved name
    assert str(error.value) == (
        f"test_a_reserved_name_cannot_be_written writes {name!r}, which is always there and cannot be written\n"
        f"  asked at     {at('write a reserved name')}\n"
        "  open stages  step\n"
        "  take another name"
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda fixtures: fixtures.define("stage", 1),
        lambda fixtures: fixtures.modify("stage", 1),
        lambda fixtures: fixtures.update({"x": 1, "stage": 1}),
    ],
)
def test_no_way_of_writing_reaches_a_reserved_name(write: Callable[[Fixtures], None]) -> None:
    extensible = Extensible()
    with extensible.staged("step") as stage:
        with pytest.raises(FixtureExists, match="writes 'stage', which is always there"):
            write(extensible.fixtures)
        assert extensible.fixtures["stage"] is stage
        assert dict(extensible.fixtures) == {}


def test_writing_with_no_stage_open_is_refused(at: At) -> None:
    extensible = Extensible()
    with pytest.raises(NoStageOpen) as error:
        extensible.fixtures["x"] = 1  # write outside
    assert str(error.value) == (
        "test_writing_with_no_stage_open_is_refused writes 'x' while no stage is open\n"
        f"  asked at     {at('write outside')}\n"
        "  open stages  none\n"
        "  a fixture lives as long as its stage: write it inside `with self.staged(...):`"
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda fixtures: fixtures.define("x", 1),
        lambda fixtures: fixtures.modify("x", 1),
        lambda fixtures: fixtures.update({"x": 1}),
        lambda fixtures: fixtures.setdefault("x", 1),
    ],
)
def test_no_way_of_writing_does_without_a_stage(write: Callable[[Fixtures], None]) -> None:
    extensible = Extensible()
    with pytest.raises(NoStageOpen):
        write(extensible.fixtures)
    assert "x" not in extensible.fixtures


# ---- changing --------------------------------------------------------------------------------------------------------


def test_modify_changes_a_value_and_leaves_its_owner() -> None:
    extensible = Extensible()
    with extensible.staged("run", {"x": 1}):
        with extensible.staged("step"):
            extensible.fixtures.modify("x", 2)
        assert extensible.fixtures["x"] == 2
    assert "x" not in extensible.fixtures


def test_a_name_that_is_not_alive_cannot_be_modified(at: At) -> None:
    extensible = Extensible()
    with extensible.staged("step", {"losses": 1}):
        with pytest.raises(FixtureNotFound) as error:
            extensible.fixtures.modify("loss", 1)  # modify nothing
    assert str(error.value) == (
        "test_a_name_that_is_not_alive_cannot_be_modified modifies 'loss', which no open stage provides\n"
        f"  asked at     {at('modify nothing')}\n"
        "  open stages  step\n"
        "  alive        losses\n"
        "  did you mean 'losses'?"
    )


def test_update_modifies_what_is_alive_and_defines_the_rest() -> None:
    extensible = Extensible()
    with extensible.staged("run", {"x": 1}):
        with extensible.staged("step"):
            extensible.fixtures.update({"x": 2, "y": 3})
            assert dict(extensible.fixtures) == {"x": 2, "y": 3}
        assert dict(extensible.fixtures) == {"x": 2}


def test_a_fixture_cannot_be_deleted_before_its_stage_ends() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        fixtures: Any = extensible.fixtures
        with pytest.raises(AttributeError):
            del fixtures["x"]


# ---- recursion -------------------------------------------------------------------------------------------------------


def test_a_recursion_hides_the_fixtures_of_the_outer_stage_until_the_inner_one_ends() -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"node": 1, "mark": 1}):
        with extensible.staged("visit", {"node": 2}):
            assert dict(extensible.fixtures) == {"node": 2}
        assert dict(extensible.fixtures) == {"node": 1, "mark": 1}


def test_a_recursion_hides_nothing_of_the_stages_between_and_around() -> None:
    extensible = Extensible()
    with extensible.staged("run", {"r": 0}), extensible.staged("visit", {"v": 1}), extensible.staged("step", {"s": 2}):
        with extensible.staged("visit"):
            assert dict(extensible.fixtures) == {"r": 0, "s": 2}


def test_a_value_given_to_the_stage_of_a_recursion_goes_to_the_inner_one() -> None:
    extensible = Extensible()
    with extensible.staged("visit"):
        with extensible.staged("visit"), extensible.staged("look"):
            extensible.fixtures.define("seen", 1, stage="visit")
        assert "seen" not in extensible.fixtures


def test_a_hidden_name_cannot_be_defined_in_a_stage_that_will_outlive_the_hiding() -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"node": 1}), extensible.staged("step"), extensible.staged("visit"):
        with pytest.raises(FixtureExists, match="which stage 'visit' has defined already"):
            extensible.fixtures.define("node", 2, stage="step")


def test_what_a_failed_recursion_hid_is_back() -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"node": 1}):
        with pytest.raises(FixtureExists), extensible.staged("visit", {"node": 2, "stage": 3}):
            pass
        assert dict(extensible.fixtures) == {"node": 1}


# ---- thread affinity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "touch",
    [
        lambda extensible: extensible.fixtures["x"],
        lambda extensible: extensible.fixtures.get("x"),
        lambda extensible: "x" in extensible.fixtures,
        lambda extensible: list(extensible.fixtures),
        lambda extensible: extensible.fixtures.modify("x", 2),
        lambda extensible: extensible.fixtures.define("y", 2),
        lambda extensible: extensible.fixtures.update({"y": 2}),
        lambda extensible: extensible.fixtures.setdefault("y", 2),
        lambda extensible: extensible.staged("inner").__enter__(),
        lambda extensible: extensible.call_by_name(lambda x: x),
    ],
)
def test_another_thread_that_touches_the_fixtures_gets_an_error(touch: Callable[[Extensible], object]) -> None:
    extensible = Extensible()
    raised: list[StageError] = []

    def other() -> None:
        with pytest.raises(StageError) as error:
            touch(extensible)
        raised.append(error.value)

    with extensible.staged("step", {"x": 1}):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert dict(extensible.fixtures) == {"x": 1}
    assert str(raised[0]) == (
        "stages were touched by another thread than the one that opened them\n"
        "  use one Extensible for each thread, or hand the values over as arguments"
    )


def test_another_thread_may_open_stages_when_none_is_open() -> None:
    extensible = Extensible()
    seen: list[int] = []

    def other() -> None:
        with extensible.staged("step", {"x": 2}):
            seen.append(extensible.fixtures["x"])

    with extensible.staged("step", {"x": 1}):
        pass
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [2]
    assert extensible.fixtures["stage"] is None


# ---- nothing is kept -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gc() -> Generator[None]:
    """What dies in such a test dies because nobody refers to it, not because the collector came by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
def test_a_value_dies_with_its_stage() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": Value()}, defaults={"y": Value()}):
        extensible.fixtures["z"] = Value()
        watched = [weakref.ref(value) for value in extensible.fixtures.values()]
        assert len(watched) == 3
    assert [reference() for reference in watched] == [None, None, None]


@pytest.mark.usefixtures("no_gc")
def test_a_modified_value_dies_at_once() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": Value()}):
        watched = weakref.ref(extensible.fixtures["x"])
        extensible.fixtures.modify("x", None)
        assert watched() is None


@pytest.mark.usefixtures("no_gc")
def test_a_hidden_value_dies_with_its_own_stage() -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"x": Value()}):
        watched = weakref.ref(extensible.fixtures["x"])
        with extensible.staged("visit", {"x": Value()}):
            pass
        assert watched() is not None
    assert watched() is None


@pytest.mark.usefixtures("no_gc")
def test_a_stage_that_somebody_keeps_keeps_no_value() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": Value()}) as kept:
        watched = weakref.ref(extensible.fixtures["x"])
    assert watched() is None
    assert kept.path == ("step",)


@pytest.mark.usefixtures("no_gc")
def test_an_inner_stage_that_somebody_keeps_keeps_no_value_that_it_hid() -> None:
    extensible = Extensible()
    with extensible.staged("visit", {"x": Value()}):
        watched = weakref.ref(extensible.fixtures["x"])
        with extensible.staged("visit") as kept:
            pass
    assert watched() is None
    assert kept.path == ("visit", "visit")


class Failing(Extension):
    def pre_before(self, x: Value) -> None:
        raise ValueError

    def post_after(self, x: Value) -> None:
        raise ValueError

    def around_around(self, x: Value) -> Generator[None]:
        yield
        raise ValueError

    def post_many(self, x: Value) -> None:
        raise ValueError

    def around_many(self, x: Value) -> Generator[None]:
        yield
        raise ValueError


@pytest.mark.parametrize("stage", ["before", "after", "around", "many"])
@pytest.mark.usefixtures("no_gc")
def test_a_value_dies_with_the_error_of_a_hook_that_has_seen_it(stage: str) -> None:
    extensible = Extensible([Failing()])
    watched: list[weakref.ref[Value]] = []

    def work() -> None:
        value = Value()
        watched.append(weakref.ref(value))
        with extensible.staged(stage, {"x": value}):
            pass

    try:
        work()
    except (ValueError, ExceptionGroup):
        assert watched[0]() is not None
    assert watched[0]() is None


@pytest.mark.usefixtures("no_gc")
def test_a_value_dies_with_the_error_of_the_body_though_a_hook_failed_too() -> None:
    extensible = Extensible([Failing()])
    watched: list[weakref.ref[Value]] = []

    def work() -> None:
        value = Value()
        watched.append(weakref.ref(value))
        with extensible.staged("many", {"x": value}):
            raise KeyError

    try:
        work()
    except KeyError:
        assert watched[0]() is not None
    assert watched[0]() is None
