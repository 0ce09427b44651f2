from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from train_manager import Extensible, Extension, always, fixture
from train_manager.core.schedule import Schedule, add_schedules, load_states, schedules_of, states_of


class Told(Schedule):
    """Writes down what it is told, and lets the hook run or not."""

    remembers = ("name", "lets")

    def __init__(self, notes: list[str], name: str, lets: bool = True) -> None:
        self.notes, self.name, self.lets = notes, name, lets

    def opened(self, stage: Any, alive: Mapping[str, Any]) -> None:
        self.notes.append(f"{self.name} opened {stage.name} with {alive['x']}")

    def should_run(self, x: int) -> bool:
        self.notes.append(f"{self.name} asked with {x}")
        return self.lets

    def finished(self) -> None:
        self.notes.append(f"{self.name} finished")


class Stepper(Extensible):
    def step(self, x: int = 1) -> None:
        with self.staged("step", {"x": x}):
            pass


@pytest.fixture
def notes() -> list[str]:
    """Empty, to begin with."""
    return []


def note(notes: list[str], text: str) -> Callable[[], None]:
    return lambda: notes.append(text)


def test_a_schedule_is_told_of_the_opening_then_asked_then_told_that_the_hook_has_run(notes: list[str]) -> None:
    Stepper([Extension.of(post_step=Told(notes, "schedule")(note(notes, "hook")))]).step(5)
    assert notes == ["schedule opened step with 5", "schedule asked with 5", "hook", "schedule finished"]


def test_a_schedule_that_reads_a_lazy_fixture_has_it_computed(notes: list[str]) -> None:
    class Provider(Extension):
        @fixture("step")
        def double(self, x: int) -> int:
            notes.append("computed")
            return 2 * x

    class ReadsDouble(Told):
        def opened(self, stage: Any, alive: Mapping[str, Any]) -> None:
            notes.append(f"double is {alive['double']}")

    Stepper([Provider(), Extension.of(post_step=ReadsDouble(notes, "schedule")(note(notes, "hook")))]).step()
    assert notes[:2] == ["computed", "double is 2"]


def test_of_several_schedules_the_first_that_refuses_is_the_last_that_is_asked(notes: list[str]) -> None:
    first, second, third = Told(notes, "first"), Told(notes, "second", lets=False), Told(notes, "third")
    Stepper([Extension.of(pre_step=first(second(third(note(notes, "hook")))))]).step()
    assert notes[3:] == ["first asked with 1", "second asked with 1"]


def test_a_schedule_is_told_that_its_hook_has_run_also_where_it_raised(notes: list[str]) -> None:
    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Stepper([Extension.of(pre_step=Told(notes, "schedule")(failing))]).step()
    assert notes[-1] == "schedule finished"


def test_an_around_hook_has_run_when_it_has_been_left(notes: list[str]) -> None:
    class Around(Extension):
        @Told(notes, "schedule")
        def around_step(self) -> Iterator[None]:
            notes.append("entered")
            yield
            notes.append("left")

    Stepper([Around(), Extension.of(post_step=note(notes, "post"))]).step()
    assert notes[2:] == ["entered", "post", "left", "schedule finished"]


def test_an_around_hook_that_should_not_run_is_not_entered(notes: list[str]) -> None:
    class Around(Extension):
        @Told(notes, "schedule", lets=False)
        def around_step(self) -> Iterator[None]:
            notes.append("entered")
            yield

    Stepper([Around()]).step()
    assert notes == ["schedule opened step with 1", "schedule asked with 1"]


def test_an_always_hook_that_should_not_run_does_not_run_after_a_failure(notes: list[str]) -> None:
    class Cleaning(Extension):
        @always
        @Told(notes, "schedule", lets=False)
        def post_step(self) -> None:
            notes.append("cleaned")

    stepper = Stepper([Cleaning()])
    with pytest.raises(ZeroDivisionError), stepper.staged("step", {"x": 1}):
        raise ZeroDivisionError
    assert notes == ["schedule opened step with 1", "schedule asked with 1"]


def test_each_object_has_copies_of_its_own() -> None:
    class Watcher(Extension):
        @Told([], "schedule")
        def post_step(self) -> None: ...

    first, second = Watcher(), Watcher()
    assert schedules_of(first, "post_step")[0] is not schedules_of(second, "post_step")[0]
    assert schedules_of(first, "post_step")[0] is schedules_of(first, "post_step")[0]


def test_a_hook_without_schedules_has_none_and_nothing_is_written_on_the_object() -> None:
    class Watcher(Extension):
        def post_step(self) -> None: ...

    watcher = Watcher()
    assert schedules_of(watcher, "post_step") == []
    assert vars(watcher) == {}


def test_schedules_that_are_added_to_an_object_stand_above_its_own() -> None:
    class Watcher(Extension):
        @Told([], "own")
        def post_step(self) -> None: ...

    watcher = Watcher()
    add_schedules(watcher, "post_step", [Told([], "first"), Told([], "second")])
    assert [vars(schedule)["name"] for schedule in schedules_of(watcher, "post_step")] == ["first", "second", "own"]


def test_what_schedules_remember_comes_back_on_any_object_with_that_hook() -> None:
    class Watcher(Extension):
        @Told([], "schedule")
        def post_step(self) -> None: ...

    first, second = Watcher(), Watcher()
    vars(schedules_of(first, "post_step")[0])["name"] = "changed"
    assert states_of(first) == {"post_step": [{"name": "changed", "lets": True}]}
    load_states(second, {**states_of(first), "pre_gone": [{"name": "of a hook that is gone"}]})
    assert states_of(second) == states_of(first)
