from __future__ import annotations

from inspect import Parameter, signature

from train_manager import Extensible, Extension
from train_manager.core.signature import asking_for


class Worker(Extensible):
    def work(self) -> None:
        with self.staged("work", {"size": 2, "colour": "red"}):
            pass


def test_a_hook_gets_what_it_asks_for_and_nothing_else() -> None:
    seen: list[object] = []
    Worker([Extension.of(post_work=asking_for(["size"], lambda values: seen.append(dict(values))))]).work()

    assert seen == [{"size": 2}]


def test_a_wish_with_a_default_need_not_be_alive() -> None:
    seen: list[object] = []
    wish = Parameter("height", Parameter.KEYWORD_ONLY, default=1)
    Worker([Extension.of(post_work=asking_for([wish], lambda values: seen.append(dict(values))))]).work()

    assert seen == [{}]


def test_of_two_wishes_of_one_name_the_one_without_a_default_counts() -> None:
    wish = Parameter("size", Parameter.KEYWORD_ONLY, default=1)
    both: tuple[str | Parameter, ...] = ("size", wish)

    for wishes in (both, both[::-1]):
        assert str(signature(asking_for(wishes, dict))) == "(size)"


def test_wishes_with_and_without_a_default_do_not_get_mixed_up() -> None:
    seen: list[object] = []
    wish = Parameter("colour", Parameter.KEYWORD_ONLY, default="grey")
    Worker([Extension.of(post_work=asking_for([wish, "size"], lambda values: seen.append(dict(values))))]).work()

    assert seen == [{"size": 2, "colour": "red"}]
