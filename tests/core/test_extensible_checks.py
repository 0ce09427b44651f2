"""A plain Extensible is checked as its first stage opens; names that code outside of the class may have pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.checker import check
from train_manager.errors import CheckError, FixtureNotFound
from train_manager.testing import tiny_manager


class Worker(Extensible):
    def work(self) -> None:
        with self.staged("work", {"size": 2}):
            pass

    def rest(self) -> None:
        with self.staged("rest"):
            pass


class Misspelt(Extension):
    def post_wrk(self) -> None: ...


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The classes that were checked."""
    done: list[type] = []
    really = check.check

    def noted(owner: type, *args: Any, **kwargs: Any) -> Any:
        done.append(owner)
        return really(owner, *args, **kwargs)

    monkeypatch.setattr(check, "check", noted)
    return done


def test_a_mistake_is_found_as_the_first_stage_opens() -> None:
    with pytest.raises(CheckError) as error:
        Worker([Misspelt()]).work()
    assert str(error.value).startswith(
        "a mistake in the hooks of Worker, found before the first stage\n"
        "1. Misspelt.post_wrk (extension 'misspelt') would never run: post_wrk names no stage\n"
    )


def test_it_is_found_again_at_the_next_stage_which_finds_nothing_open() -> None:
    worker = Worker([Misspelt()])
    for _ in range(2):
        with pytest.raises(CheckError):
            worker.work()
    assert worker.fixtures.path == ()


@pytest.mark.parametrize("look", [Worker.explain, Worker.check])
def test_it_is_found_after_a_look_by_hand(look: Callable[[Worker], object]) -> None:
    worker = Worker([Misspelt()])
    with suppress(CheckError):
        look(worker)
    with pytest.raises(CheckError):
        worker.work()


def test_an_object_is_checked_once(checks: list[type]) -> None:
    worker = Worker([Extension.of(pre_work=lambda size: None)])
    for method in (worker.work, worker.rest, worker.work):
        method()
    assert checks == [Worker]


def test_an_object_without_hooks_is_not_checked(checks: list[type]) -> None:
    Worker().work()
    assert checks == []


def test_it_is_checked_again_after_an_extension_was_added(checks: list[type]) -> None:
    worker = Worker([Extension.of(pre_work=lambda size: None)])
    worker.work()
    worker.add_extension(Misspelt())
    with pytest.raises(CheckError):
        worker.work()
    assert checks == [Worker, Worker]


def test_a_train_manager_is_checked_only_as_its_run_opens(checks: list[type]) -> None:
    tm = tiny_manager(Extension.of(pre_train=lambda: None))
    tm.check_parameters = False  # an extension of the loop's own, after whose end the rest are checked again
    tm.train()
    assert len(checks) == 1


# ---- stages that other code opens ------------------------------------------------------------------------------------


def opened(worker: Extensible, stage: str) -> None:
    with worker.staged(stage):
        pass


def test_a_hook_of_a_stage_that_a_function_opens_runs() -> None:
    seen: list[str] = []
    opened(Extensible([Extension.of(pre_report=lambda: seen.append("report"))]), "report")
    assert seen == ["report"]


def test_fixtures_that_other_code_gives_a_stage_are_unknown() -> None:
    seen: list[int] = []
    with Worker([Extension.of(pre_work=lambda colour: seen.append(colour))]).staged("work", {"colour": 3}):
        pass
    assert seen == [3]


def test_a_name_like_one_of_the_class_is_a_mistake_there_too() -> None:
    worker = Worker([Misspelt()])
    with pytest.raises(CheckError, match="did you mean 'post_work'"):
        opened(worker, "report")


def test_a_fixture_of_the_class_that_is_not_alive_at_the_hook_is_a_mistake() -> None:
    with pytest.raises(CheckError, match="'size', which is not alive at pre_rest: it lives in stage 'work'"):
        Worker([Extension.of(pre_rest=lambda size: None)]).work()


def test_a_fixture_of_an_unknown_name_is_an_error_where_it_is_asked_for() -> None:
    worker = Worker([Extension.of(pre_rest=lambda colour: None)])
    worker.work()
    with pytest.raises(FixtureNotFound, match="wants 'colour', which no open stage provides"):
        worker.rest()


def test_a_check_by_hand_finds_unknown_names_too() -> None:
    with pytest.raises(CheckError, match="2 mistakes in the hooks of Worker"):
        Worker([Extension.of(pre_rest=lambda colour: None, pre_report=lambda: None)]).check()


def test_a_stage_that_the_calling_file_opens_later_is_no_mistake() -> None:
    seen: list[str] = []
    worker = Worker([Extension.of(pre_report=lambda: seen.append("report"))])
    worker.work()
    with worker.staged("report"):
        pass
    assert seen == ["report"]


def test_fixtures_that_the_calling_file_defines_while_a_stage_is_open_are_no_mistake() -> None:
    class Opening(Extensible):
        @contextmanager
        def opened(self) -> Iterator[None]:
            with self.staged("work"):
                yield

    seen: list[int] = []
    worker = Opening([Extension.of(post_work=lambda set_outside, given: seen.extend((set_outside, given)))])
    with worker.opened():
        worker.fixtures["set_outside"] = 3
        worker.fixtures.define("given", 4)
    assert seen == [3, 4]


def test_stages_that_the_check_does_not_follow_are_left_alone() -> None:
    class Nested(Extensible):
        def inside(self) -> None:
            def inner() -> None:
                with self.staged("work"):
                    pass

            inner()

    Nested([Misspelt()]).inside()


def test_a_class_whose_source_is_not_there_is_left_alone() -> None:
    namespace: dict[str, Any] = {"Extensible": Extensible}
    exec("class Made(Extensible):\n    def work(self):\n        with self.staged('work'): pass\n", namespace)
    namespace["Made"]([Misspelt()]).work()


def test_opening_a_stage_again_takes_no_call_more(checks: list[type]) -> None:
    def calls(do: Callable[[], None]) -> int:
        count = 0

        def profile(frame: Any, event: str, called: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            do()
        finally:
            sys.setprofile(None)
        return count

    checked, unchecked = Worker([Extension.of(pre_rest=lambda: None)]), Worker()
    for worker in (checked, unchecked):
        worker.work()
    assert calls(checked.work) == calls(unchecked.work)
