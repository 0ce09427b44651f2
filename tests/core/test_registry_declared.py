"""The class attribute ``extensions``, read on the class and on an object."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.errors import HookError


class First(Extension):
    def pre_stage(self) -> None: ...


class Equipped(Extensible):
    extensions = [First()]


def test_on_the_class_it_is_what_the_class_declares() -> None:
    (declared,) = Equipped.extensions
    assert isinstance(declared, First)
    assert isinstance(Equipped.extensions, list)


def test_a_class_that_declares_none_has_none() -> None:
    assert tuple(Extensible.extensions) == ()


def test_on_an_object_it_is_what_is_there_now_by_name() -> None:
    extensible = Equipped()
    view: Any = extensible.extensions
    added = extensible.add_extension(Extension(), "second")
    assert dict(view) == {"first": Equipped.extensions[0], "second": added}
    extensible.remove_extension("first")
    assert list(view) == ["second"]


def test_what_an_object_gets_is_not_declared_on_its_class() -> None:
    Equipped().add_extension(Extension(), "second")
    assert len(Equipped.extensions) == 1
    assert list(Equipped().extensions) == ["first"]


def test_an_assignment_to_an_object_is_refused_with_what_to_do() -> None:
    extensible = Equipped()
    with pytest.raises(HookError) as error:
        extensible.extensions = [Extension()]
    assert str(error.value) == (
        "Equipped.extensions was assigned, which adds no hook\n"
        "  declare them on the class, pass them to the constructor, or call add_extension(...)"
    )
    assert list(extensible.extensions) == ["first"]


def test_the_view_of_an_object_cannot_be_written() -> None:
    extensible = Equipped()
    view: Any = extensible.extensions
    with pytest.raises(TypeError, match="does not support item assignment"):
        view["second"] = Extension()
    with pytest.raises(TypeError, match="does not support item deletion"):
        del view["first"]
    assert list(extensible.extensions) == ["first"]
