from __future__ import annotations

import copy
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.core.calls import NamedCall, sometimes, with_parameters
from train_manager.errors import CheckError


class Worker(Extensible):
    def work(self) -> None:
        with self.staged("work", {"size": 2, "colour": "red"}):
            pass


def test_a_hook_gets_what_it_asks_for_and_nothing_else() -> None:
    seen: list[object] = []
    Worker([Extension.of(post_work=with_parameters(["size"], lambda values: seen.append(dict(values))))]).work()

    assert seen == [{"size": 2}]


def test_a_parameter_with_a_default_need_not_be_alive() -> None:
    seen: list[object] = []
    parameter = Parameter("height", Parameter.KEYWORD_ONLY, default=1)
    Worker([Extension.of(post_work=with_parameters([parameter], lambda values: seen.append(dict(values))))]).work()

    assert seen == [{}]


def test_two_functions_behind_one_hook_keep_their_own_defaults() -> None:
    seen: list[int] = []

    def one(height: int = 1) -> None:
        seen.append(height)

    def other(height: int = 2) -> None:
        seen.append(height)

    asked = [parameter for function in (one, other) for parameter in signature(function).parameters.values()]

    def both(values: Mapping[str, Any]) -> None:
        one(**values)
        other(**values)

    Worker([Extension.of(post_work=with_parameters(asked, both))]).work()

    assert seen == [1, 2]


def test_of_two_parameters_of_one_name_the_one_without_a_default_counts() -> None:
    parameter = Parameter("size", Parameter.KEYWORD_ONLY, default=1)
    both: tuple[str | Parameter, ...] = ("size", parameter)

    for parameters in (both, both[::-1]):
        assert str(signature(with_parameters(parameters, dict))) == "(size)"


def test_parameters_with_and_without_a_default_do_not_get_mixed_up() -> None:
    seen: list[object] = []
    parameter = Parameter("colour", Parameter.KEYWORD_ONLY, default="grey")
    Worker(
        [Extension.of(post_work=with_parameters([parameter, "size"], lambda values: seen.append(dict(values))))]
    ).work()

    assert seen == [{"size": 2, "colour": "red"}]


def test_a_name_that_is_sometimes_alive_is_left_out_while_it_is_not() -> None:
    class Measuring(Worker):
        def measure(self) -> None:
            with self.staged("work", {"height": 3}):
                pass

    seen: list[object] = []
    maybe = map(sometimes, ["colour", "height"])
    made = with_parameters(["size", *maybe], lambda values: seen.append(dict(values)))
    Measuring([Extension.of(post_work=made)]).work()

    assert seen == [{"size": 2, "colour": "red"}]


def test_a_name_that_is_both_required_and_sometimes_alive_is_required() -> None:
    assert str(signature(with_parameters(["size", sometimes("size")], dict))) == "(size)"


def test_the_check_refuses_a_name_of_sometimes_that_is_never_alive() -> None:
    class Asks(Extension):
        def __init__(self) -> None:
            self.post_work = with_parameters([sometimes("siz")], dict)

    with pytest.raises(CheckError, match=r"Asks.post_work wants 'siz'") as caught:
        Worker([Asks()]).check()
    assert caught.value.mistakes[0].nearest[0] == "size"


def test_a_copied_hook_still_knows_which_names_are_sometimes_alive() -> None:
    made = copy.deepcopy(with_parameters([sometimes("siz")], dict))

    assert NamedCall(made).expected == ("siz",)
