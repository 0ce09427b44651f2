"""The codec with a hook of its caller; tests/checkpoints/test_state_tree.py has round trips of all values."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from typing import Any

import pytest

from train_manager.errors import CheckpointError
from train_manager.files.json_values import Decoder, Path, ValueEncoder, mark_of


def written(value: Any, path: Path, encoder: ValueEncoder) -> Any:
    if isinstance(value, complex):
        return {"$complex": encoder.items([value.real, value.imag], path)}
    return encoder.plain(value, path)


def read(tree: Any, path: Path, decoder: Decoder) -> Any:
    if mark_of(tree, path) == "$complex":
        return complex(*decoder.items(tree["$complex"], path))
    return decoder.plain(tree, path)


def test_a_hook_adds_a_form_at_any_depth() -> None:
    value = {"a": [(1j, {2: complex("inf")})], "b": OrderedDict(c=Counter(d=2))}
    tree = json.loads(json.dumps(ValueEncoder(written)(value), allow_nan=False))

    assert Decoder(read)(tree) == value


def test_a_dict_with_text_keys_stays_an_object_whatever_its_keys_are() -> None:
    value = {"$tuple": [1], "$$": {"$": 2}, "step": 3}

    assert ValueEncoder()(value) == {"$$tuple": [1], "$$$": {"$$": 2}, "step": 3}
    assert Decoder()(ValueEncoder()(value)) == value


def test_a_value_in_two_places_does_not_contain_itself() -> None:
    part = [1]

    assert ValueEncoder()([part, (part,)]) == [[1], {"$tuple": [[1]]}]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"x": [{"$tuple": [], "$dict": []}]}, "x.0: it has the marks $tuple, $dict"),
        ({"x": {"$complex": [1, 2]}}, "x: '$complex' means nothing"),
        ({"x": {"$tuple": [], "step": 1}}, "x: '$tuple' means nothing"),
        ([{"$dict": [[1]]}], "0: it must be a list of pairs"),
        ({"$tuple": {"$float": "1e5"}}, "the top: {'$float': '1e5'} must be a list"),
    ],
    ids=range(5),
)
def test_a_tree_that_was_not_written_so_is_refused_with_its_place(tree: Any, told: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        Decoder()(tree)

    assert caught.value.what == told
