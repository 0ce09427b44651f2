"""A plain Extensible is checked once, as its first stage opens; not if code outside of its class opens stages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from train_manager import CheckError, Extensible, Extension
from train_manager.checker import check
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
    tiny_manager(Extension.of(pre_train=lambda: None)).train()
    assert len(checks) == 1


# ---- stages that other code opens ------------------------------------------------------------------------------------


def opened(worker: Extensible, stage: str) -> None:
    with worker.staged(stage):
        pass


def test_hooks_of_stages_that_a_function_opens_are_unknown(checks: list[type]) -> None:
    seen: list[str] = []
    opened(Extensible([Extension.of(pre_wrk=lambda: seen.append("wrk"))]), "wrk")
    assert (seen, checks) == (["wrk"], [])


def test_fixtures_that_other_code_gives_a_stage_are_unknown() -> None:
    seen: list[int] = []
    with Worker([Extension.of(pre_work=lambda colour: seen.append(colour))]).staged("work", {"colour": 3}):
        pass
    assert seen == [3]


def test_after_such_a_stage_nothing_is_known_of_the_object_any_more() -> None:
    worker = Worker([Extension.of(pre_wrk=lambda: None)])
    opened(worker, "wrk")
    worker.work()
    worker.add_extension(Extension.of(post_wrk=lambda: None))
    worker.work()


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


def test_methods_behind_decorators_and_functions_inside_of_them_belong_to_the_class() -> None:
    class Nested(Extensible):
        @contextmanager
        def around(self) -> Iterator[None]:
            with self.staged("work"):
                yield

        def work(self) -> None:
            with self.around():
                pass

        def inside(self) -> None:
            def inner() -> None:
                with self.staged("work"):
                    pass

            inner()

    for method in (Nested.work, Nested.inside):
        with pytest.raises(CheckError):
            method(Nested([Misspelt()]))


def test_a_class_whose_source_is_not_there_is_left_alone() -> None:
    namespace: dict[str, Any] = {"Extensible": Extensible}
    exec("class Made(Extensible):\n    def work(self):\n        with self.staged('work'): pass\n", namespace)
    namespace["Made"]([Misspelt()]).work()


def test_a_stage_that_the_source_does_not_show_makes_all_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard(Extensible):
        def work(self) -> None:
            with self.staged("work"):
                pass

    Standard.work.__module__ = "train_manager.core.made"  # the check does not look into the core
    Standard([Misspelt()]).work()


EDITED = """
from train_manager import Extensible

class Edited(Extensible):
    def work(self):
        with self.staged("work"):
            self.inner()

    def inner(self):
        with self.staged("inner"):
            pass
"""


def test_a_file_that_was_edited_after_the_import_makes_all_unknown(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text(EDITED)
    namespace: dict[str, Any] = {"__name__": "edited"}
    exec(compile(EDITED, str(file), "exec"), namespace)
    file.write_text(EDITED.replace("    def inner", "    def added(self):\n        return 1\n\n    def inner"))
    namespace["Edited"]([Extension.of(post_inner=lambda: None)]).work()


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
