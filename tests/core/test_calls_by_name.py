from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible
from train_manager.core.calls import NamedCall
from train_manager.errors import FixtureNotFound, HookError

At = Callable[[str], str]


def test_the_order_of_parameters_does_not_matter() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"a": 1, "b": 2, "c": 3}):
        assert NamedCall(lambda c, a: (c, a))(extensible._store) == (3, 1)


def test_a_default_is_used_when_the_fixture_is_not_alive() -> None:
    call = NamedCall(lambda x="absent": x)
    extensible = Extensible()
    assert call(extensible._store) == "absent"
    with extensible.staged("step", {"x": 1}):
        assert call(extensible._store) == 1


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


def test_kwargs_get_every_live_fixture_but_the_always_there_ones() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"a": 1, "b": 2, "c": 3}):
        assert NamedCall(lambda b, **rest: (b, rest))(extensible._store) == (2, {"a": 1, "c": 3})


def test_what_is_always_there_can_be_named() -> None:
    extensible = Extensible()
    with extensible.staged("step") as step:
        found = NamedCall(lambda fixtures, stage, extensible: (fixtures, stage, extensible))(extensible._store)
        assert found == (extensible.fixtures, step, extensible)


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


def test_star_args_are_refused(at: At) -> None:
    def function(*values: int) -> None: ...  # takes star args

    with pytest.raises(HookError) as error:
        NamedCall(function, "A.post_step")
    assert str(error.value) == (
        "A.post_step has the parameter `*values`, but fixtures are given by name\n"
        f"  asked at     {at('takes star args')}\n"
        "  name what it wants, or take all with **values"
    )


def test_positional_only_parameters_are_refused(at: At) -> None:
    def function(loss: int, /) -> None: ...  # takes by position

    with pytest.raises(HookError) as error:
        NamedCall(function, "A.post_step")
    assert str(error.value) == (
        "A.post_step has the parameter `loss, /`, but fixtures are given by name\n"
        f"  asked at     {at('takes by position')}\n"
        "  take the `/` out of its signature"
    )


def test_a_wrapped_function_has_the_parameters_of_what_it_wraps() -> None:
    def parameter(x: int) -> int:
        return x

    @functools.wraps(parameter)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return 10 * parameter(*args, **kwargs)

    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        assert NamedCall(wrapper)(extensible._store) == 10


def test_a_signature_can_be_read_from_another_function() -> None:
    def likes_x(x: int) -> None: ...

    extensible = Extensible()
    with extensible.staged("step", {"x": 1, "y": 2}):
        assert NamedCall(lambda **found: found, reads=likes_x)(extensible._store) == {"x": 1}


def test_a_signature_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    call = NamedCall(lambda x: x)
    monkeypatch.delattr(inspect, "signature")
    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        assert call(extensible._store) == 1


def test_missing_names_are_the_required_ones_that_are_not_alive() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"b": 1}):
        assert NamedCall(lambda a, b, c, d=4: None).missing(extensible._store) == ["a", "c"]
