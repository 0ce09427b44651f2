from __future__ import annotations

import copy
from inspect import Parameter, signature

import pytest

from train_manager import CheckError, Extensible, Extension
from train_manager.core.signature import NamedCall, with_parameters


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


def test_a_name_that_is_seldom_alive_is_left_out_while_it_is_not() -> None:
    class Measuring(Worker):
        def measure(self) -> None:
            with self.staged("work", {"height": 3}):
                pass

    seen: list[object] = []
    made = with_parameters(["size"], lambda values: seen.append(dict(values)), seldom=["colour", "height"])
    Measuring([Extension.of(post_work=made)]).work()

    assert seen == [{"size": 2, "colour": "red"}]


def test_a_name_that_is_both_required_and_seldom_alive_is_required() -> None:
    assert str(signature(with_parameters(["size"], dict, seldom=["size"]))) == "(size)"


def test_the_check_refuses_a_seldom_name_that_is_never_alive() -> None:
    class Asks(Extension):
        def __init__(self) -> None:
            self.post_work = with_parameters([], dict, seldom=["siz"])

    with pytest.raises(CheckError, match=r"Asks.post_work wants 'siz'") as caught:
        Worker([Asks()]).check()
    assert caught.value.mistakes[0].nearest[0] == "size"


def test_a_copied_hook_still_knows_its_seldom_names() -> None:
    made = copy.deepcopy(with_parameters([], dict, seldom=["siz"]))

    assert NamedCall(made).expected == ("siz",)
