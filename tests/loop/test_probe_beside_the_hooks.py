"""Code beside the hooks: what it sees, and that all is put back after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from train_manager import Extensible, Extension, fixture
from train_manager.errors import FixtureNotFound
from train_manager.loop.probe import beside_the_hooks


class Worker(Extensible):
    @fixture("work")
    def double(self, size: int) -> Iterator[int]:
        yield 2 * size

    def work(self) -> None:
        with self.staged("work", {"size": 1, "name": "a"}):
            self.define()
            assert self.fixtures["double"] == 2
            self.around()

    def define(self) -> None:
        self.fixtures["made"] = "here"

    def around(self) -> None:
        raise NotImplementedError


def test_fixtures_have_other_values_in_it_and_lazy_ones_are_computed_anew() -> None:
    class Beside(Worker):
        def around(self) -> None:
            before = dict(self.fixtures)
            with beside_the_hooks(self._store, "work", {"size": 5}, ["define"]):
                inside = dict(self.fixtures, double=self.fixtures["double"])
                self.fixtures.modify("name", "b")
            seen.extend([before, inside, dict(self.fixtures)])

    seen: list[dict[str, object]] = []
    Beside().work()
    whole = {"size": 1, "name": "a", "made": "here", "double": 2}

    assert seen == [whole, {"name": "a", "size": 5, "double": 10}, whole]


def test_a_lazy_fixture_that_was_modified_in_place_of_being_computed_keeps_its_value_in_it() -> None:
    class Beside(Worker):
        def define(self) -> None:
            self.fixtures.modify("double", 2)

        def around(self) -> None:
            with beside_the_hooks(self._store, "work", {"size": 5}, []):
                seen.append(self.fixtures["double"])

    seen: list[int] = []
    Beside().work()

    assert seen == [2]


def test_a_lazy_fixture_that_cleans_up_does_so_as_it_ends() -> None:
    class Held(Extensible):
        @fixture("work")
        def held(self) -> Iterator[int]:
            yield len(log)
            log.append("left")

        def work(self) -> None:
            with self.staged("work"):
                with beside_the_hooks(self._store, "work", {}, []):
                    log.append(f"held {self.fixtures['held']}")
                log.append("after it")

    log: list[str] = []
    Held().work()

    assert log == ["held 0", "left", "after it"]


def test_what_its_own_functions_have_defined_is_not_alive_until_they_define_it_again() -> None:
    class Beside(Worker):
        def around(self) -> None:
            with beside_the_hooks(self._store, "work", {}, ["define"]):
                with pytest.raises(FixtureNotFound):
                    self.fixtures["made"]
                self.define()
            seen.append(list(self.fixtures))

    seen: list[list[str]] = []
    Beside().work()

    assert [sorted(names) for names in seen] == [["double", "made", "name", "size"]]


def test_stages_open_in_it_without_their_hooks_which_run_again_after_it() -> None:
    class Notes(Extension):
        def pre_inner(self) -> None:
            ran.append("hook")

    class Beside(Worker):
        def around(self) -> None:
            with beside_the_hooks(self._store, "work", {}, ["define"]), self.staged("inner"):
                ran.append("beside")
            with self.staged("inner"):
                ran.append("body")

    ran: list[str] = []
    Beside([Notes()]).work()

    assert ran == ["beside", "hook", "body"]


def test_an_error_in_it_leaves_the_fixtures_as_they_were() -> None:
    class Beside(Worker):
        def around(self) -> None:
            with pytest.raises(ZeroDivisionError):
                with beside_the_hooks(self._store, "work", {"size": 5}, ["define"]):
                    self.fixtures["more"] = 1 / 0
            seen.append(dict(self.fixtures))

    seen: list[dict[str, object]] = []
    Beside().work()

    assert seen == [{"size": 1, "name": "a", "made": "here", "double": 2}]
