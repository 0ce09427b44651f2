from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.core.extension import free_name, name_extensions, require_extension
from train_manager.errors import HookError


class LossCurves(Extension):
    pass


class EMA(Extension):
    pass


class HTTPReport2File(Extension):
    pass


@pytest.mark.parametrize(
    ("extension", "name"),
    [(LossCurves(), "loss_curves"), (EMA(), "ema"), (HTTPReport2File(), "http_report2_file")],
)
def test_a_name_is_the_class_name_in_snake_case(extension: Extension, name: str) -> None:
    assert free_name(extension, {}) == name


def test_a_second_of_a_class_gets_a_number() -> None:
    extensions = [EMA(), LossCurves(), EMA(), EMA()]
    assert list(name_extensions(extensions)) == ["ema", "loss_curves", "ema_2", "ema_3"]


def test_a_class_that_was_defined_anew_takes_the_place_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a notebook that runs again makes another class of the same name."""
    notebook = ModuleType("notebook")
    notebook.Extension = Extension  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    worker = Extensible()
    for _ in range(2):
        exec("class Cell(Extension):\n    def post_work(self): ...", vars(notebook))
        worker.add_extension(notebook.Cell())

    assert list(worker.extensions) == ["cell"]
    assert type(worker["cell"]) is notebook.Cell


def test_two_classes_that_were_made_at_run_time_are_two() -> None:
    made = [type("Made", (Extension,), {"post_work": lambda self: None})() for _ in range(2)]

    assert list(name_extensions(made)) == ["made", "made_2"]


def test_a_dict_keeps_its_names() -> None:
    slow = EMA()
    assert name_extensions({"slow": slow}) == {"slow": slow}


def test_nothing_is_no_extensions() -> None:
    assert name_extensions(None) == {}


def test_a_class_instead_of_an_instance_is_refused_with_the_call_to_write() -> None:
    wrong: Any = EMA
    with pytest.raises(HookError) as error:
        require_extension(wrong)
    assert str(error.value) == "an extension must be an instance, but is the class EMA\n  add an instance: EMA()"


def test_what_is_no_extension_is_refused() -> None:
    wrong: Any = "ema"
    with pytest.raises(HookError) as error:
        require_extension(wrong)
    of_dict = "of a dict: extensions={**usual, 'name': MyExtension()}"
    assert (
        str(error.value)
        == f"the text 'ema' is not an extension\n  give the object, not its name: MyExtension(); {of_dict}"
    )


def test_a_dict_is_checked_as_a_list_is() -> None:
    wrong: Any = {"ema": EMA}
    with pytest.raises(HookError, match="an extension must be an instance, but is the class EMA"):
        name_extensions(wrong)


def test_an_extension_keeps_state_as_any_object_does() -> None:
    class Counter(Extension):
        count = 0

        def post_step(self) -> None:
            self.count += 1

    counter = Counter()
    counter.post_step()
    assert counter.count == 1


def test_one_extension_without_a_list_is_refused() -> None:
    with pytest.raises(HookError) as error:
        name_extensions(Extension())  # type: ignore[arg-type]
    assert (
        str(error.value)
        == "extensions must be a list or a dict, but is one Extension\n  give a list: extensions=[Extension()]"
    )


def test_a_dict_in_a_list_brings_its_names() -> None:
    first, second = Extension(), Extension()

    assert name_extensions([{"usual": first}, second]) == {"usual": first, "extension": second}


def test_a_name_that_two_extensions_have_is_refused() -> None:
    with pytest.raises(HookError) as error:
        name_extensions([Extension(), {"extension": Extension()}])

    assert str(error.value) == ("two extensions are called 'extension'\n  give one of them another name in its dict")


def plot(loss: float) -> None:
    """A function that could be a hook."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ema", "the text 'ema'\n  give the objects, not their names: extensions=[MyExtension()]"),
        (Extension, "the class Extension\n  give a list: extensions=[Extension()]"),
        (Extension(), "one Extension\n  give a list: extensions=[Extension()]"),
        (
            plot,
            "the function plot\n  call it, if it returns them: extensions=plot(); "
            "or extensions=[Extension.of(post_work=plot)]",
        ),
        (
            lambda loss: None,
            "a lambda\n  name its hook: extensions=[Extension.of(post_work=lambda ...: ...)]",
        ),
    ],
)
def test_what_is_no_list_of_extensions_is_refused(value: Any, text: str) -> None:
    with pytest.raises(HookError) as error:
        name_extensions(value)

    assert str(error.value) == f"extensions must be a list or a dict, but is {text}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            plot,
            "the function plot is not an extension\n  name its hook: extensions=[Extension.of(post_work=plot)]",
        ),
        (None, "None is not an extension\n  leave it out: [*usual, *([MyExtension()] if wanted else [])]"),
        (3, "int 3 is not an extension\n  derive its class from train_manager.Extension"),
    ],
)
def test_what_is_no_extension_in_a_list_is_refused(value: Any, text: str) -> None:
    with pytest.raises(HookError) as error:
        name_extensions([value])

    assert str(error.value) == text
