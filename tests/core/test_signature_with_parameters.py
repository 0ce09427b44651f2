from __future__ import annotations

from inspect import Parameter, signature

from train_manager import Extensible, Extension
from train_manager.core.signature import with_parameters


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
