"""What becomes of a hook's return value, and what a hook may not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible, Extension, modifies, provides
from train_manager.errors import FixtureExists, FixtureNotFound, HookError, StageError

At = Callable[[str], str]


def returning(value: Any, *declarations: Callable[..., Any], name: str = "pre_step") -> Extension:
    """An extension whose one hook returns a value."""
    function: Callable[..., Any] = lambda: value  # noqa: E731
    for mark in declarations:
        function = mark(function)
    return Extension.of(**{name: function})


def test_provided_values_live_as_long_as_the_hooked_stage() -> None:
    extensible = Extensible([returning(5, provides("five"))])
    with extensible.staged("run"):
        with extensible.staged("step"):
            assert extensible.fixtures["five"] == 5
        assert dict(extensible.fixtures) == {}


def test_none_is_a_value_that_can_be_provided() -> None:
    extensible = Extensible([returning(None, provides("nothing"))])
    with extensible.staged("step"):
        assert dict(extensible.fixtures) == {"nothing": None}


def test_a_modified_value_stays_with_its_owner() -> None:
    extensible = Extensible([returning(2, modifies("x"))])
    with extensible.staged("run", {"x": 1}):
        with extensible.staged("step"):
            pass
        assert extensible.fixtures["x"] == 2
    assert dict(extensible.fixtures) == {}


def test_several_names_take_a_tuple() -> None:
    extensible = Extensible([returning((1, 2, 3), provides("b", "c"), modifies("a"))])
    with extensible.staged("step", {"a": 0}):
        assert dict(extensible.fixtures) == {"a": 1, "b": 2, "c": 3}


def test_one_name_takes_a_tuple_as_its_value() -> None:
    extensible = Extensible([returning((1, 2), provides("pair"))])
    with extensible.staged("step"):
        assert extensible.fixtures["pair"] == (1, 2)


def test_none_for_what_is_modified_is_refused(at: At) -> None:
    class Forgets(Extension):
        @modifies("x")  # forgets to return
        def pre_step(self, x: int) -> None: ...

    with pytest.raises(HookError) as error, Extensible([Forgets()]).staged("step", {"x": 1}):
        pass
    assert str(error.value) == (
        "Forgets.pre_step returned None for 'x', which it modifies\n"
        f"  asked at     {at('forgets to return')}\n"
        "  return the new value"
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [((1,), "1 values"), ((1, 2, 3), "3 values"), (None, "None"), (7, "one int"), ([1, 2], "one list")],
)
def test_what_is_no_tuple_of_the_right_length_is_refused(value: object, told: str, at: At) -> None:
    class Wrong(Extension):
        @provides("a", "b")  # wrong length
        def pre_step(self) -> object:
            return value

    with pytest.raises(HookError) as error, Extensible([Wrong()]).staged("step"):
        pass
    assert str(error.value) == (
        f"Wrong.pre_step returned {told} for (a, b)\n  asked at     {at('wrong length')}\n  return a tuple: return a, b"
    )


def test_a_value_may_go_to_an_enclosing_stage() -> None:
    extensible = Extensible([returning(5, provides("five", stage="run"))])
    with extensible.staged("run"):
        with extensible.staged("step"):
            pass
        assert extensible.fixtures["five"] == 5


def test_a_stage_that_is_not_open_cannot_own_it() -> None:
    extensible = Extensible([returning(5, provides("five", stage="runn"))])
    with pytest.raises(StageError, match=r"defines a fixture in stage 'runn', which is not open") as error:
        with extensible.staged("run"), extensible.staged("step"):
            pass
    assert error.value.nearest == ("run",)


def test_providing_what_is_alive_is_refused() -> None:
    with pytest.raises(FixtureExists, match=r"defines 'x', which stage 'step' has defined already"):
        with Extensible([returning(5, provides("x"))]).staged("step", {"x": 1}):
            pass


def test_modifying_what_is_not_alive_is_refused() -> None:
    with pytest.raises(FixtureNotFound, match=r"modifies 'x', which no open stage provides"):
        with Extensible([returning(5, modifies("x"))]).staged("step"):
            pass


def test_a_modifier_of_every_stage_runs_where_the_fixture_is_alive() -> None:
    extensible = Extensible([returning(2, modifies("x"), name="pre_stage")])
    with extensible.staged("run"):
        with extensible.staged("step", {"x": 1}):
            assert extensible.fixtures["x"] == 2


# ---- strict --------------------------------------------------------------------------------------------------------


class Strict(Extensible):
    """Hooks write only what they declare."""

    strict = True


WRITES: list[Callable[[Any], object]] = [
    lambda fixtures: fixtures.__setitem__("y", 1),
    lambda fixtures: fixtures.define("y", 1),
    lambda fixtures: fixtures.modify("x", 1),
    lambda fixtures: fixtures.update({"y": 1}),
    lambda fixtures: fixtures.setdefault("y", 1),
]


@pytest.mark.parametrize("write", WRITES, ids=["item", "define", "modify", "update", "setdefault"])
def test_strict_refuses_every_undeclared_write(write: Callable[[Any], object]) -> None:
    extensible = Strict([Extension.of(pre_step=lambda fixtures: write(fixtures))])
    with extensible.staged("run", {"x": 0}):
        with pytest.raises(HookError, match=r"Hooks.pre_step writes '[xy]' without declaring it"):
            with extensible.staged("step"):
                pass
        assert dict(extensible.fixtures) == {"x": 0}


def test_strict_tells_what_to_declare(at: At) -> None:
    class Writer(Extension):
        def post_step(self, fixtures: Any) -> None:
            fixtures.modify("x", 2)  # undeclared

    with pytest.raises(HookError) as error, Strict([Writer()]).staged("step", {"x": 1}):
        pass
    assert str(error.value) == (
        "Writer.post_step writes 'x' without declaring it, which `strict` refuses\n"
        f"  asked at     {at('undeclared')}\n"
        "  open stages  step\n"
        '  declare it and return the value: @modifies("x")'
    )


def test_strict_allows_what_is_declared_and_what_the_stage_itself_writes() -> None:
    extensible = Strict([returning(5, provides("five")), returning(2, modifies("x"))])
    with extensible.staged("step", {"x": 1}):
        extensible.fixtures["own"] = 1
        assert dict(extensible.fixtures) == {"x": 2, "five": 5, "own": 1}


def test_a_hook_that_only_reads_cannot_change_what_is_alive() -> None:
    class Reads(Extension):
        def pre_step(self, x: int, **rest: object) -> None:
            rest["y"] = 0

    extensible = Strict([Reads()])
    with extensible.staged("step", {"x": 1, "y": 2}):
        assert dict(extensible.fixtures) == {"x": 1, "y": 2}
