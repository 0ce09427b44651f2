"""Which function stands behind a name of a class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from train_manager.checker.method_source import method


def plain(self: object) -> int:
    return 1


@functools.wraps(plain)
def wrapping(self: object) -> int:
    return plain(self) + 1


class Holder:
    plain = plain
    wrapped = wrapping
    prop = property(plain)
    wrapped_prop = property(wrapping)
    cached = functools.cached_property(plain)
    partial = functools.partialmethod(plain)
    write_only = property(None, lambda self, value: None)
    number = 3
    kind = int
    builtin = len

    def own(self) -> None: ...


class Heir(Holder): ...


@pytest.mark.parametrize("name", ["plain", "wrapped", "prop", "wrapped_prop", "cached"])
@pytest.mark.parametrize("owner", [Holder, Heir])
def test_it_is_the_innermost_function_of_what_the_class_holds(owner: type, name: str) -> None:
    assert method(owner, name) is plain


def test_it_is_the_method_that_stands_in_the_class() -> None:
    own: Callable[..., Any] = vars(Holder)["own"]
    assert method(Heir, "own") is own


@pytest.mark.parametrize("name", ["write_only", "number", "kind", "builtin", "absent", "partial"])
def test_it_is_none_where_there_is_no_function(name: str) -> None:
    assert method(Holder, name) is None


def test_finding_it_runs_nothing() -> None:
    class Raising:
        @property
        def prop(self) -> None:
            raise AssertionError("was run")

    found = method(Raising, "prop")
    assert found is not None
    assert found.__name__ == "prop"
