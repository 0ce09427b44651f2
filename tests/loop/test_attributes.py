"""The private names of a manager: a subclass that takes one of them for something else is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager import TrainManager
from train_manager.loop.progress import Progress
from train_manager.testing import tiny_manager


def refused(does: str, name: str) -> str:
    return f"Own {does} {name!r}, which each TrainManager has of its own (call it otherwise: my{name})"


@pytest.mark.parametrize("name", ["_setup", "_progress", "_program", "_train", "_registry"])
def test_a_subclass_that_defines_a_private_name_of_the_manager_is_refused(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        type("Own", (TrainManager,), {name: lambda self: None})

    assert str(caught.value) == refused("defines", name)


def test_a_mixin_with_a_private_name_of_the_manager_is_refused() -> None:
    class Mixin:
        def _evaluate(self) -> None: ...

    with pytest.raises(TypeError) as caught:
        type("Own", (Mixin, TrainManager), {})

    assert str(caught.value) == refused("defines", "_evaluate")


@pytest.mark.parametrize("name", ["_setup", "_progress", "_program", "_windows"])
def test_an_object_that_sets_the_state_of_the_manager_is_refused(name: str) -> None:
    class Own(TrainManager):
        pass

    tm = Own(model=tiny_manager().model, loss=tiny_manager().loss)

    with pytest.raises(TypeError) as caught:
        setattr(tm, name, "a bar that shows how far the training is")

    assert str(caught.value) == refused("sets", name)
    assert isinstance(tm._progress, Progress)


def test_private_names_that_no_class_of_the_library_has_are_free() -> None:
    class Own(TrainManager):
        _resume: Any = None

        def _repr_html_(self) -> str:
            return "<b>own</b>"

        def _teacher(self) -> None: ...

    tm = Own(model=tiny_manager().model, loss=tiny_manager().loss)
    tm._bar = 3  # type: ignore[attr-defined]

    assert tm._repr_html_() == "<b>own</b>"
