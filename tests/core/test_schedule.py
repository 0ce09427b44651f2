from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from train_manager import Extensible, Extension, always
from train_manager.core.schedule import Schedule, schedules_of


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


def test_a_hook_without_schedules_has_none_and_nothing_is_written_on_the_object() -> None:
    class Watcher(Extension):
        def post_step(self) -> None: ...

    watcher = Watcher()
    assert schedules_of(watcher, "post_step") == []
    assert vars(watcher) == {}
