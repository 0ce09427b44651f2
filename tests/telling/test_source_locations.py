from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from train_manager.telling.source_locations import display_path, line_of, line_of_function, site_of

At = Callable[[str], str]


def test_a_site_knows_the_line_where_the_frame_was(at: At) -> None:
    site = site_of(sys._getframe())  # this line
    later = site_of(sys._getframe())  # that line
    assert (line_of(site), line_of(later)) == (at("this line"), at("that line"))


def test_a_function_stands_where_it_is_defined(at: At) -> None:
    def function() -> None: ...  # its definition

    assert line_of_function(function) == at("its definition")


def test_a_wrapped_function_stands_where_the_inner_one_does(at: At) -> None:
    def inner() -> None: ...  # the inner one

    @functools.wraps(inner)
    def outer() -> None: ...

    assert line_of_function(outer) == at("the inner one")


def test_what_has_no_python_source_stands_nowhere() -> None:
    assert line_of_function(len) == ""


def test_a_path_is_shown_from_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert display_path(str(tmp_path / "code" / "ema.py")) == str(Path("code") / "ema.py")


def test_a_path_outside_the_working_folder_is_shown_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    outside = str(tmp_path / "ema.py")
    assert display_path(outside) == outside


@pytest.mark.parametrize("path", ["<stdin>", "<ipython-input-1>"])
def test_what_is_no_file_is_shown_as_it_is(path: str) -> None:
    assert display_path(path) == path
