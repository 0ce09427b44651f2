from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.core.extension import free_name, name_extensions
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


def test_a_dict_is_checked_as_a_list_is() -> None:
    wrong: Any = {"ema": EMA}
    with pytest.raises(HookError, match="an extension must be an instance, but is the class EMA"):
        name_extensions(wrong)


def test_a_dict_in_a_list_brings_its_names() -> None:
    first, second = Extension(), Extension()

    assert name_extensions([{"usual": first}, second]) == {"usual": first, "extension": second}


def test_a_name_that_two_extensions_have_is_refused() -> None:
    with pytest.raises(HookError) as error:
        name_extensions([Extension(), {"extension": Extension()}])

    assert str(error.value) == (
        "two extensions are called 'extension'\n"
        "  give one of them another name; or let it replace the other: {**usual, 'extension': x}"
    )


class Curves(Extension):
    sole = True


class SmoothCurves(Curves):
    pass


@pytest.mark.parametrize("reverse", [False, True])
def test_a_sole_object_takes_the_name_and_place_of_the_one_from_a_dict_of_the_list(reverse: bool) -> None:
    usual, mine = {"a": Extension(), "usual_curves": Curves(), "z": Extension()}, Curves()
    named = name_extensions([mine, usual] if reverse else [usual, mine])

    assert list(named.items()) == [("a", usual["a"]), ("usual_curves", mine), ("z", usual["z"])]


def test_a_sole_class_has_its_subclasses_with_it() -> None:
    smooth, plain = SmoothCurves(), Curves()

    assert name_extensions([{"usual_curves": plain}, smooth]) == {"usual_curves": smooth}
    assert name_extensions([{"usual_curves": smooth}, plain]) == {"usual_curves": plain}


def test_a_subclass_may_end_that_its_class_is_sole() -> None:
    class Many(Curves):
        sole = False

    assert list(name_extensions([{"usual_curves": Curves()}, Many(), Many()])) == ["usual_curves", "many", "many_2"]


def test_a_dict_follows_what_is_there_and_comes_before_the_objects_of_its_list() -> None:
    earlier, of_dict, of_list = {"usual_curves": Curves()}, Curves(), Curves()

    assert name_extensions({"mine": of_dict}, earlier=earlier) == {"usual_curves": of_dict}
    assert name_extensions([{"mine": of_dict}, of_list], earlier=earlier) == {"usual_curves": of_list}


def test_a_name_that_a_dict_replaces_is_no_place_for_another_of_its_entries() -> None:
    other, mine = Extension(), Curves()
    named = name_extensions({"usual_curves": other, "mine": mine}, earlier={"usual_curves": Curves()})

    assert named == {"usual_curves": other, "mine": mine}


def test_of_two_sole_objects_in_a_list_only_the_first_takes_the_place() -> None:
    first, second = Curves(), Curves()

    assert name_extensions([first, second], earlier={"curves": Curves()}) == {"curves": first, "curves_2": second}


def plot(loss: float) -> None:
    """A function that could be a hook."""


OTHERS = [
    (Extension, "the class Extension\n  add an instance: Extension()"),
    (
        plot,
        "the function plot\n  name its hook: Extension.of(post_work=plot); if it returns extensions, call it",
    ),
    (
        lambda loss: None,
        "the function lambda ...: ...\n"
        "  name its hook: Extension.of(post_work=lambda ...: ...); if it returns extensions, call it",
    ),
    (
        "ema",
        "str 'ema'\n  give objects of Extension classes in place of 'ema': "
        "extensions=[MyExtension()], or a dict by name; or leave it out",
    ),
    (
        3,
        "int 3\n  give objects of Extension classes in place of 3: "
        "extensions=[MyExtension()], or a dict by name; or leave it out",
    ),
]


@pytest.mark.parametrize(("value", "text"), OTHERS)
def test_what_is_no_list_of_extensions_is_refused(value: Any, text: str) -> None:
    with pytest.raises(HookError) as error:
        name_extensions(value)

    assert str(error.value) == f"extensions must be a list or a dict, but is {text}"


@pytest.mark.parametrize(("value", "text"), OTHERS)
def test_what_is_no_extension_in_a_list_is_refused(value: Any, text: str) -> None:
    with pytest.raises(HookError) as error:
        name_extensions([value])

    assert str(error.value) == f"an extension must be an instance, but is {text}"


def test_one_extension_without_a_list_is_refused_with_the_list_to_write() -> None:
    with pytest.raises(HookError) as error:
        name_extensions(Extension())  # type: ignore[arg-type]

    assert str(error.value) == (
        "extensions must be a list or a dict, but is Extension Extension()\n"
        "  give objects of Extension classes in place of Extension(): "
        "extensions=[Extension()], or a dict by name; or leave it out"
    )


def test_a_list_in_a_list_is_refused_with_the_entry_that_it_is() -> None:
    wrong: Any = [[Extension(), [EMA()]]]
    with pytest.raises(HookError) as error:
        name_extensions(wrong)

    assert (
        str(error.value)
        .splitlines()[1]
        .startswith("  give objects of Extension classes in place of [Extension(), [EMA()]]:")
    )
