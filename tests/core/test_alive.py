from __future__ import annotations

from typing import Any

import pytest

from train_manager.core.alive import Alive
from train_manager.core.scope import Caller, Scope


class Counting:
    """A promise that counts how often it is kept."""

    scope: Scope
    provider: Caller

    def __init__(self) -> None:
        self.kept = 0

    def __call__(self) -> Any:
        self.kept += 1
        return "computed"


def test_a_value_is_looked_up_as_in_a_dict() -> None:
    assert Alive({"loss": 0.5})["loss"] == 0.5


def test_looking_up_what_is_promised_computes_it() -> None:
    alive = Alive({})
    alive.promised["norm"] = promise = Counting()
    assert (alive["norm"], promise.kept) == ("computed", 1)


def test_has_and_names_know_what_is_promised_and_compute_nothing() -> None:
    alive = Alive({"loss": 0.5})
    alive.promised["norm"] = promise = Counting()
    assert (alive.has("loss"), alive.has("norm"), alive.has("x")) == (True, True, False)
    assert (alive.names(), promise.kept) == (["loss", "norm"], 0)


def test_what_is_neither_there_nor_promised_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Alive({})["loss"]
