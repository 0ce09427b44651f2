"""Keys, words and arguments of the tables of a file."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import pytest
from torch import Tensor, nn

from tests.learner.planted import DATA, MODEL, changed, said_of
from train_manager import InputError
from train_manager.learner import dataset_file, entries, load_model
from train_manager.learner.description import Description, FileMistakes, told
from train_manager.learner.entries import (
    COUNT,
    NAMES,
    NUMBER,
    SHARE,
    TABLE,
    TABLES,
    TEXT,
    WHOLE,
    Key,
    ValueForm,
    _form_of_parameter,
    parameters_of,
    read_keys,
    read_tables,
)
from train_manager.rebuilding import registry

pytestmark = pytest.mark.usefixtures("planted_words")


def said_of_value(form: ValueForm, value: Any) -> str:
    """Return what is said of a value; empty if it has the form."""
    tree, mistakes = {"key": value}, FileMistakes()
    read_keys(Description.read(tree, "it").root(mistakes), {"key": Key(form, "a key")})
    return message_of(mistakes)


def message_of(mistakes: FileMistakes) -> str:
    try:
        mistakes.raise_all()
    except InputError as error:
        return str(error).removeprefix("the dict has a mistake\n  the dict  ")
    return ""


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (TEXT, 3, "key must be a text that is not empty, but is the number 3"),
        (TEXT, "", "key must be a text that is not empty, but is the text ''"),
        (NAMES, [], "key must be a name or a list of names, but is the list []"),
        (NAMES, ["a", 1], "key must be a name or a list of names, but is the list ['a', 1]"),
        (TABLE, 0.75, "key must be a table, but is the number 0.75"),
        (TABLES, ["relu"], "key must be a list of tables, but is the list ['relu']\n            "
         'write [{ use = "..." }]'),
        (COUNT, 0, "key must be a whole number from 1 on, but is the number 0"),
        (COUNT, True, "key must be a whole number from 1 on, but is true"),
        (COUNT, 2.0, "key must be a whole number from 1 on, but is the number 2.0"),
        (WHOLE, -1, "key must be a whole number from 0 on, but is the number -1"),
        (NUMBER, float("nan"), "key must be a finite number, but is the number nan"),
        (NUMBER, "1", "key must be a finite number, but is the text '1'"),
        (SHARE, 0, "key must be a number above 0, at most 1, but is the number 0"),
        (SHARE, 1.5, "key must be a number above 0, at most 1, but is the number 1.5"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_named(form: ValueForm, value: Any, message: str) -> None:
    assert said_of_value(form, value) == message


def test_a_misspelt_required_key_is_one_mistake() -> None:
    tree: dict[str, Any] = {"inptus": {}}
    mistakes = FileMistakes()
    read_keys(Description.read(tree, "it").root(mistakes), {"inputs": Key(TABLE, "the inputs", required=True)})

    assert message_of(mistakes) == "inptus is not a known key\n            did you mean 'inputs'? known: inputs"


@pytest.mark.parametrize("entry", [{"use": "digits"}, {"from": "image", "layers": [{}]}, {"at": "trunk"}])
def test_a_table_without_a_name_is_one_mistake(entry: dict[str, Any]) -> None:
    mistakes = FileMistakes()

    assert list(read_tables(Description.read({"module": entry}, "it").root(mistakes).below("module"))) == []
    assert message_of(mistakes) == "module is a table without a name\n            write [module.a_name]"


# ---- arguments ----


def takes(  # type: ignore[no-untyped-def]
    whole: int,
    number: float,
    flag: bool,
    text: str,
    word: Literal["same", "valid"],
    pair: tuple[int, int],
    several: list[float],
    table: Mapping[str, int],
    rate: float | Tensor,
    maybe: int | None = None,
    tensor: Tensor | None = None,
    plain: Any = None,
    untyped=0.1,
) -> None:
    """Take an argument of each type."""


def said_of_argument(name: str, value: object) -> str:
    """Return what is said of an argument of ``takes``; empty if it fits."""
    form = _form_of_parameter(takes, signature(takes).parameters[name])
    return "" if form.fits(value) else f"must be {form.words}, but is {told(value)}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("whole", "3", "must be a whole number, but is the text '3'"),
        ("whole", 3.0, "must be a whole number, but is the number 3.0"),
        ("whole", True, "must be a whole number, but is true"),
        ("number", "0.1", "must be a number, but is the text '0.1'"),
        ("number", False, "must be a number, but is false"),
        ("flag", 1, "must be true or false, but is the number 1"),
        ("text", 5, "must be a text, but is the number 5"),
        ("word", "smae", "must be 'same' or 'valid', but is the text 'smae'"),
        ("pair", 3, "must be a list of 2 whole numbers, but is the number 3"),
        ("pair", [3], "must be a list of 2 whole numbers, but is the list [3]"),
        ("several", ["1"], "must be a list of numbers, but is the list ['1']"),
        ("table", 3, "must be a table, but is the number 3"),
        ("rate", "1e-3", "must be a number, but is the text '1e-3'"),
        ("maybe", "3", "must be a whole number, but is the text '3'"),
        ("tensor", [1.0], "must be left out, but is the list [1]"),
        ("untyped", "high", "must be a number, but is the text 'high'"),
    ],
)
def test_a_value_of_another_type_is_named_with_the_type_that_is_meant(name: str, value: object, message: str) -> None:
    assert said_of_argument(name, value) == message


def test_a_layer_of_torch_has_no_device_and_no_type_in_a_file() -> None:
    assert list(parameters_of(nn.Linear)) == ["in_features", "out_features", "bias"]


def test_an_lstm_has_the_arguments_of_its_base_class() -> None:
    names = list(parameters_of(nn.LSTM))

    assert names[:3] == ["input_size", "hidden_size", "num_layers"]
    assert not {"mode", "device", "dtype"} & set(names)


# ---- words ----


PLANTED = {
    "a loss for a module": (
        [('"ReLU"', '"CrossEntropyLoss"')],
        """\
  model.toml:7  module.trunk.layers[1].use names torch.nn:CrossEntropyLoss, but must name a module
                known: ...
                a loss has its place in [objective.a_name]""",
    ),
    "a module for a loss": (
        [('"cross_entropy"', '"Linear"')],
        """\
  model.toml:15  objective.class.use names torch.nn:Linear, but must name a loss
                 known: ...
                 a module has its place in [module.a_name]""",
    ),
    "a list of modules": (
        [('"ReLU"', '"ModuleList"')],
        """\
  model.toml:7  module.trunk.layers[1].use names torch.nn:ModuleList, but must name a module
                known: ...
                write layers = [{ use = "..." }], or a module of your own, with @recorded above it""",
    ),
    "a device in a layer": (
        [("out_features = 10", 'out_features = 10\ndevice = "cuda"')],
        """\
  model.toml:14  module.digit.device is not an argument of Linear
                 known: in_features, out_features, bias, from, layers""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_word_or_an_argument_is_named_with_its_cure(
    changes: list[tuple[str, str]], message: str
) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message


def test_a_word_that_two_modules_of_the_program_have_is_refused_with_both_whole_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._REGISTERED, "others:pictures", lambda: None)
    monkeypatch.setattr(dataset_file, "DATASET", entries.Kind("a function", callable))

    assert said_of(data=changed(DATA, ("inputs", "rows = 80\ninputs"))) == (
        "  data.toml:2  dataset.digits.use is the name of tests.learner.planted:pictures and of others:pictures\n"
        '               write one of these: use = "tests.learner.planted:pictures"'
    )


def test_a_whole_name_is_a_word_too() -> None:
    Path("model.toml").write_text(changed(MODEL, ('"ReLU"', '"torch.nn:ReLU"')))

    assert isinstance(load_model("model.toml").trunk[1], nn.ReLU)  # type: ignore[index]
