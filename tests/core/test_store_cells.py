"""The cell of one fixture: a value while it is alive, and an error if there is none."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest

from train_manager import Extensible, Extension
from train_manager.core.scope import LIVE
from train_manager.core.store import Options
from train_manager.telling.errors import FixtureExists, FixtureNotFound


class Counting(Extensible):
    """Counts in an attribute, which hooks read as the fixture `size` of its stage."""

    _options = Options(own_name="counting", live={"size": "sizes.present"})

    def __init__(self, *extensions: Extension) -> None:
        super().__init__(extensions)
        self.sizes = SimpleNamespace(present=1)


def test_a_live_fixture_is_read_where_it_lives() -> None:
    seen: list[int] = []
    counting = Counting(Extension.of(pre_work=lambda size: seen.append(size), post_work=lambda size: seen.append(size)))
    with counting.staged("work", {"size": LIVE}):
        counting.sizes.present = 2
        assert counting.fixtures["size"] == 2
        assert dict(counting.fixtures) == {"size": 2}
    assert seen == [1, 2]


def test_a_value_that_is_given_where_no_stage_has_a_live_fixture_is_the_value() -> None:
    counting = Counting()
    with counting.staged("rest", {"size": 9}):
        assert counting.fixtures["size"] == 9
        counting.fixtures.modify("size", 10)
        assert counting.fixtures["size"] == 10
    with counting.staged("work", {"size": LIVE}):
        assert counting.fixtures["size"] == 1


def test_a_live_fixture_is_dead_outside_of_the_stage_that_gives_it() -> None:
    counting = Counting()
    with counting.staged("work", {"size": LIVE}):
        pass
    assert "size" not in counting.fixtures
    with pytest.raises(FixtureNotFound, match=r"reads 'size', which ended with stage 'work'"):
        _ = counting.fixtures["size"]
    assert counting.sizes.present == 1


def test_a_hook_with_all_fixtures_gets_a_live_one() -> None:
    seen: list[int] = []

    class Hooks(Extension):
        def post_work(self, **fixtures: int) -> None:
            seen.append(fixtures["size"])

    with Counting(Hooks()).staged("work", {"size": LIVE}):
        pass
    assert seen == [1]


def test_a_live_fixture_cannot_be_modified_as_a_fixture() -> None:
    counting = Counting()
    with counting.staged("work", {"size": LIVE}), pytest.raises(FixtureExists) as caught:
        counting.fixtures.modify("size", 3)
    assert "modifies 'size', which is an attribute of the counting, and cannot be written as a fixture" in str(
        caught.value
    )
    assert "set the attribute of the counting" in str(caught.value)
    assert counting.sizes.present == 1


def test_an_outer_stage_has_its_live_fixture_back_after_a_recursion() -> None:
    counting = Counting()
    with counting.staged("work", {"size": LIVE}):
        with counting.staged("work", {"size": LIVE}):
            counting.sizes.present = 5
        assert counting.fixtures["size"] == 5


def test_a_copy_reads_its_own_attribute() -> None:
    counting = Counting()
    other = copy.deepcopy(counting)
    other.sizes.present = 7
    with counting.staged("work", {"size": LIVE}), other.staged("work", {"size": LIVE}):
        assert (counting.fixtures["size"], other.fixtures["size"]) == (1, 7)
