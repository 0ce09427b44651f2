"""Stages that run without being opened, since nothing looks into them; and what opens them late."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from train_manager import Extensible, Extension, every, fixture
from train_manager.core.store import Options
from train_manager.errors import FixtureExists, FixtureNotFound, StageError


class Machine(Extensible):
    """Opens ``outer``, and in it ``inner``, which may stay closed; ``inside`` is called in it."""

    _options = Options(closing=frozenset({"inner", "other"}), notes_errors=True)

    def work(self, inside: Callable[[Any], object] = lambda machine: None, times: int = 2) -> None:
        with self.staged("outer", {"size": 3}):
            for _ in range(times):
                with self.staged("inner", {"part": 1}):
                    inside(self)

    def is_closed(self) -> bool:
        """Return whether the inner stage of the next call stays closed."""
        return "inner" in self._store.closed


def opened_by(inside: Callable[[Any], object]) -> tuple[bool, bool]:
    """Return whether the inner stage is open before and after a call in it, at its second opening."""
    seen: list[bool] = []

    def look(machine: Machine) -> None:
        seen.append("inner" in machine._store.open)
        inside(machine)
        seen.append("inner" in machine._store.open)

    Machine().work(look)
    return seen[2], seen[3]


def test_a_stage_that_nothing_looks_into_stays_closed() -> None:
    assert opened_by(lambda machine: None) == (False, False)


@pytest.mark.parametrize(
    "inside",
    [
        lambda machine: machine.fixtures.define("found", 1),
        lambda machine: machine.fixtures.define("found", 1, stage="inner"),
        lambda machine: machine.fixtures.__setitem__("found", 1),
        lambda machine: machine.fixtures.define_all({"found": 1}),
        lambda machine: machine.fixtures.update({"found": 1}),
        lambda machine: machine.fixtures.setdefault("found", 1),
        lambda machine: machine.fixtures["part"],
        lambda machine: machine.fixtures.get("part"),
        lambda machine: "part" in machine.fixtures,
        lambda machine: machine.fixtures.modify("part", 2),
        lambda machine: dict(machine.fixtures),
        lambda machine: machine.call_by_name(lambda part: part),
        lambda machine: machine.fixtures["stage"],
        lambda machine: machine.staged("deep").__enter__().__exit__(None, None, None),
    ],
    ids=str.split(
        "define define_by_stage setitem define_all update setdefault read get in modify dict call_by_name stage staged"
    ),
)
def test_code_inside_opens_it(inside: Callable[[Any], object]) -> None:
    assert opened_by(inside) == (False, True)


@pytest.mark.parametrize(
    "inside",
    [
        lambda machine: machine.fixtures["size"],
        lambda machine: machine.fixtures.get("absent"),
        lambda machine: machine.fixtures.modify("size", 4),
        lambda machine: machine.fixtures.setdefault("size", 4),
        lambda machine: machine.fixtures.path,
    ],
    ids=["read", "get", "modify", "setdefault", "path"],
)
def test_code_that_asks_for_other_fixtures_leaves_it_closed(inside: Callable[[Any], object]) -> None:
    assert opened_by(inside) == (False, False)


def test_a_fixture_that_is_defined_in_it_dies_with_it() -> None:
    def define_anew(machine: Machine) -> None:
        assert "found" not in machine.fixtures
        machine.fixtures["found"] = 1

    Machine().work(define_anew, times=3)


def test_a_fixture_that_it_gives_is_not_alive_after_it() -> None:
    class Late(Machine):
        def work_late(self) -> None:
            with self.staged("outer"):
                for _ in range(2):
                    with self.staged("inner", {"part": 1}):
                        pass
                with pytest.raises(FixtureNotFound):
                    self.fixtures["part"]

    Late().work_late()


def test_a_fixture_that_it_gives_cannot_be_defined_in_it() -> None:
    with pytest.raises(FixtureExists):
        Machine().work(lambda machine: machine.fixtures.define("part", 2))


def test_the_path_names_it() -> None:
    paths: list[tuple[str, ...]] = []
    Machine().work(lambda machine: paths.append(machine.fixtures.path))
    assert paths == [("outer", "inner")] * 2


def test_an_error_in_it_has_a_note_with_its_path() -> None:
    calls: list[int] = []

    def fail(machine: Machine) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("torn")

    with pytest.raises(ValueError, match="torn") as error:
        Machine().work(fail)
    assert error.value.__notes__ == ["at stage outer > inner"]


def test_an_error_in_it_leaves_nothing_open() -> None:
    machine = Machine()
    machine.work()
    with pytest.raises(ZeroDivisionError):
        machine.work(lambda machine: 1 / 0)
    assert machine.fixtures.path == ()


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_opens_it(kind: str) -> None:
    calls: list[int] = []
    machine = Machine([Extension.of(**{f"{kind}_inner": lambda part: calls.append(part)})])
    machine.work()
    assert not machine.is_closed()
    assert calls == [1, 1]


def test_a_provider_opens_it() -> None:
    class Offers(Extension):
        @fixture("inner")
        def double(self, part: int) -> int:
            return 2 * part

    seen: list[int] = []
    Machine([Offers()]).work(lambda machine: seen.append(machine.fixtures["double"]))
    assert seen == [2, 2]


def test_a_schedule_that_counts_its_ends_opens_it() -> None:
    calls: list[int] = []
    machine = Machine([Extension.of(post_outer=every(2, of="inner")(lambda: calls.append(1)))])
    machine.work()
    machine.work()
    assert calls == [1, 1]


def test_an_extension_that_is_added_opens_it_at_once() -> None:
    machine, calls = Machine(), []
    machine.work()
    assert machine.is_closed()
    machine.add_extension(Extension.of(post_inner=lambda: calls.append(1)))
    machine.work()
    assert calls == [1, 1]


def test_it_closes_again_as_the_extension_leaves() -> None:
    machine = Machine({"looking": Extension.of(post_inner=lambda: None)})
    machine.work()
    machine.remove_extension("looking")
    machine.work()
    assert machine.is_closed()


def test_an_extension_that_is_added_inside_of_it_is_refused() -> None:
    machine = Machine()
    machine.work()
    with pytest.raises(StageError) as error:
        machine.work(lambda machine: machine.add_extension(Extension.of(post_inner=lambda: None)))
    assert str(error.value).startswith(
        "the extensions are changed inside stage 'inner', which is too late for their hooks\n"
    )
    assert str(error.value).endswith("do so in a hook of a stage around it, or between two calls")


def test_a_stage_without_a_stage_around_it_is_always_opened() -> None:
    machine, seen = Machine(), []
    for _ in range(2):
        with machine.staged("inner"):
            seen.append("inner" in machine._store.open)
    assert seen == [True, True]


def test_a_closed_stage_inside_a_closed_one_opens_the_outer_one() -> None:
    paths: list[tuple[str, ...]] = []

    def nest(machine: Machine) -> None:
        with machine.staged("other"):
            paths.append(machine.fixtures.path)

    Machine().work(nest, times=3)
    assert paths == [("outer", "inner", "other")] * 3


def test_another_thread_is_refused() -> None:
    errors: list[BaseException] = []
    machine = Machine()
    machine.work()

    def elsewhere(machine: Machine) -> None:
        def run() -> None:
            try:
                with machine.staged("other"):
                    pass
            except StageError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    machine.work(elsewhere, times=1)
    assert len(errors) == 1


def test_values_that_it_gives_die_with_it() -> None:
    class Value: ...

    machine = Machine()
    machine.work()
    with machine.staged("outer"):
        value = Value()
        known = weakref.ref(value)
        with machine.staged("inner", {"part": value}) as stage:
            pass
        del value
        gc.collect()
        assert known() is None
        assert not stage.is_open
