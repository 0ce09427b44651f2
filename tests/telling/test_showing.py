"""Values in a repr: in a few words, and never an error."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.refusals import refusal
from train_manager import Extensible, Extension
from train_manager.errors import ExtensionNotFound, HookError
from train_manager.telling.showing import LONGEST, short


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (1e-5, "1e-05"),
        (float("nan"), "nan"),
        (True, "True"),
        ("valid/loss", "'valid/loss'"),
        ("x" * 99, f"'{'x' * 56}..."),
        (Path("runs/a"), "runs/a"),
        ([1, 2, 3, 4, 5], "[1, 2, 3, 4, ...]"),
        ({"a": 0.25}, "{'a': 0.25}"),
        (len, "len"),
        (int, "int"),
        (partial(len, []), "len"),
        (object(), "object"),
    ],
)
def test_a_value_is_short(value: Any, text: str) -> None:
    assert short(value) == text


class Smooth(Extension):
    def __init__(self, names: list[str], *more: str, share: float = 0.5, off: bool = False, **options: Any) -> None:
        self.names, self.more, self._share, self.options = names, more, share, options

    def post_work(self) -> None: ...


def test_an_extension_shows_the_arguments_that_differ_from_their_defaults() -> None:
    assert repr(Smooth(["a"], "b", share=0.1 + 0.2, rate=1)) == "Smooth(['a'], 'b', share=0.3, rate=1)"
    assert repr(Smooth([])) == "Smooth([])"


def test_an_extension_is_shown_before_its_constructor_has_ended() -> None:
    assert repr(Smooth.__new__(Smooth)) == "Smooth()"


def test_a_long_repr_is_cut() -> None:
    shown = repr(Smooth(["a"], *["some long words"] * 30))

    assert len(shown) == LONGEST
    assert shown.endswith("...")


class Hostile:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")

    def __hash__(self) -> int:
        return 0


def test_a_repr_does_not_raise_for_a_value_that_does() -> None:
    assert repr(Smooth([], share=Hostile())) == "Smooth(...)"  # type: ignore[arg-type]


# ---- an Extensible ---------------------------------------------------------------------------------------------------


class Other(Smooth):
    def __repr__(self) -> str:
        raise RuntimeError("broken")


def test_an_extensible_shows_the_names_of_its_extensions() -> None:
    assert repr(Extensible({"one": Smooth([]), "two": Smooth([])})) == "Extensible(extensions=[one, two])"


def test_names_are_offered_after_an_opening_bracket() -> None:
    worker = Extensible([Smooth([])])

    assert worker._ipython_key_completions_() == ["smooth"]
    with worker.staged("work", {"size": 2}):
        assert worker.fixtures._ipython_key_completions_() == ["size"]


def test_an_extension_is_found_by_its_class_or_a_base_of_it() -> None:
    other = Other([])
    worker = Extensible([Extension.of(post_work=lambda: None), other])

    assert worker.extension(Other) is worker.extension(Smooth) is other


def test_no_extension_of_a_class_is_an_error_that_shows_what_is_there() -> None:
    assert (
        refusal(lambda: Extensible([Smooth([])]).extension(Other), ExtensionNotFound)
        == "Extensible has no extension of class Other\n  add one with add_extension; its extensions: smooth (Smooth)"
    )


def test_several_extensions_of_a_class_are_an_error_that_names_them() -> None:
    assert (
        refusal(lambda: Extensible([Smooth([]), Other([])]).extension(Smooth), ExtensionNotFound)
        == "Extensible has 2 extensions of class Smooth: smooth, other\n  take one by its name, as in tm['smooth']"
    )


def test_a_name_in_place_of_a_class_is_an_error_that_says_how_to_take_it() -> None:
    with pytest.raises(HookError) as caught:
        Extensible([Smooth([])]).extension("smooth")  # type: ignore[arg-type]

    assert str(caught.value) == (
        "extension() takes a class, but was given 'smooth'\n  take it by its name, as in tm['smooth']"
    )
