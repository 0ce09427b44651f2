from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extension, HookError
from train_manager.core.extension import checked, free_name, named


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
    assert list(named(extensions)) == ["ema", "loss_curves", "ema_2", "ema_3"]


def test_a_dict_keeps_its_names() -> None:
    slow = EMA()
    assert named({"slow": slow}) == {"slow": slow}


def test_nothing_is_no_extensions() -> None:
    assert named(None) == {}


def test_a_class_instead_of_an_instance_is_refused_with_the_call_to_write() -> None:
    wrong: Any = EMA
    with pytest.raises(HookError) as error:
        checked(wrong)
    assert str(error.value) == "an extension must be an instance, but is the class EMA\n  add an instance: EMA()"


def test_what_is_no_extension_is_refused() -> None:
    wrong: Any = "ema"
    with pytest.raises(HookError) as error:
        checked(wrong)
    assert str(error.value) == "the text 'ema' is not an extension\n  give the object, not its name: EMA()"


def test_a_dict_is_checked_as_a_list_is() -> None:
    wrong: Any = {"ema": EMA}
    with pytest.raises(HookError, match="an extension must be an instance, but is the class EMA"):
        named(wrong)


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
        named(Extension())  # type: ignore[arg-type]
    assert (
        str(error.value)
        == "extensions must be a list or a dict, but is one Extension\n  give a list: extensions=[Extension()]"
    )
