from __future__ import annotations

import gc

import pytest

from train_manager import Extensible, Extension
from train_manager.errors import StageError


class Counter(Extension):
    count = 0

    def pre_step(self) -> None:
        self.count += 1


class Stateless(Extension):
    shared = True

    def pre_step(self) -> None: ...


def test_one_extension_may_serve_two_extensibles_one_after_the_other() -> None:
    counter = Counter()
    first, second = Extensible([counter]), Extensible([counter])
    for extensible in (first, second, first):
        with extensible.staged("step"):
            pass
    assert counter.count == 3


def test_one_extension_in_two_extensibles_with_stages_open_is_refused() -> None:
    counter = Counter()
    first, second = Extensible([counter]), Extensible([counter])
    with first.staged("run"), first.staged("step"):
        with pytest.raises(StageError) as error, second.staged("step"):
            pass
    assert str(error.value) == (
        "this Counter serves another extensible, which has stage run > step open\n"
        "  give each one a Counter of its own, or set `shared = True` in its class if it keeps no state"
    )
    assert counter.count == 1
    with second.staged("step"):
        assert counter.count == 2


def test_a_shared_extension_may_serve_both() -> None:
    stateless = Stateless()
    first, second = Extensible([stateless]), Extensible([stateless])
    with first.staged("step"), second.staged("step"):
        pass


def test_an_extension_that_was_removed_or_replaced_no_longer_counts() -> None:
    counter = Counter()
    first, second = Extensible({"one": counter}), Extensible({"one": counter})
    with first.staged("step"):
        second.add_extension(Counter(), "one")
        with second.staged("step"):
            pass
    second.add_extension(counter, "two")
    with first.staged("run"):
        second.remove_extension("two")
        with second.staged("step"):
            pass


def test_an_extensible_that_is_gone_no_longer_counts() -> None:
    counter = Counter()
    first = Extensible([counter])
    with Extensible([counter]).staged("step"):
        pass
    gc.collect()
    with first.staged("step"):
        assert counter.count == 2


def test_an_extension_need_not_be_hashable() -> None:
    class Equal(Extension):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def pre_step(self) -> None: ...

    first, second = Extensible([Equal()]), Extensible([Equal()])
    with first.staged("step"), second.staged("step"):
        pass


def test_one_that_has_worked_before_is_refused_too() -> None:
    counter = Counter()
    first, second = Extensible([counter]), Extensible([counter])
    with first.staged("step"):
        pass
    with second.staged("step"), pytest.raises(StageError), first.staged("step"):
        pass
