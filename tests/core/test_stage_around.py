from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import pytest

from train_manager import Extensible, Extension
from train_manager.errors import FixtureNotFound, HookError

At = Callable[[str], str]


class Recording(Extension):
    def __init__(self, log: list[str], name: str = "around") -> None:
        self.log = log
        self.name = name

    def around_step(self) -> Generator[None]:
        self.log.append(f"enter {self.name}")
        try:
            yield
        except BaseException as error:
            self.log.append(f"{type(error).__name__} in {self.name}")
            raise
        self.log.append(f"leave {self.name}")


def test_around_hooks_are_left_in_reverse() -> None:
    log: list[str] = []
    with Extensible([Recording(log, "a"), Recording(log, "b")]).staged("step"):
        log.append("body")
    assert log == ["enter a", "enter b", "body", "leave b", "leave a"]


def test_an_around_hook_gets_the_stages_error_at_its_yield() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="body"), Extensible([Recording(log)]).staged("step"):
        raise ValueError("body")
    assert log == ["enter around", "ValueError in around"]


class Swallowing(Extension):
    def around_step(self) -> Generator[None]:
        with contextlib.suppress(BaseException):
            yield


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_an_around_hook_cannot_swallow_the_stages_exception(error: type[BaseException]) -> None:
    raised = error("body")
    with pytest.raises(error) as caught, Extensible([Swallowing()]).staged("step"):
        raise raised
    assert caught.value is raised
    assert not hasattr(raised, "__notes__")


class Again(Extension):
    def around_step(self) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_an_around_hook_may_raise_the_stages_exception_again(error: type[BaseException]) -> None:
    raised = error("body")
    with pytest.raises(error) as caught, Extensible([Again()]).staged("step"):
        raise raised
    assert caught.value is raised
    assert not hasattr(raised, "__notes__")


@pytest.mark.parametrize("chained", [True, False])
def test_an_error_that_an_around_hook_makes_of_the_stages_is_not_lost(chained: bool, at: At) -> None:
    class Remaking(Extension):
        def around_step(self) -> Generator[None]:
            try:
                yield
            except ValueError as error:
                raise KeyError("made of it") from (error if chained else None)  # made of the body

    with pytest.raises(ValueError, match="body") as caught, Extensible([Remaking()]).staged("step"):
        raise ValueError("body")
    assert caught.value.__notes__ == [
        f"also failed at {at('made of the body')}: KeyError: 'made of it'\n"
        "  in hook Remaking.around_step of extension 'remaking', at stage step"
    ]


def test_an_around_hook_may_name_what_is_alive_before_the_pre_hooks() -> None:
    seen = []

    class Watcher(Extension):
        def pre_step(self, fixtures: dict[str, int]) -> None:
            fixtures["late"] = 2

        def around_step(self, x: int, late: int = 0) -> Generator[None]:
            seen.append((x, late))
            yield

    with Extensible([Watcher()]).staged("step", {"x": 1}):
        pass
    assert seen == [(1, 0)]


def test_an_around_hook_that_asks_for_what_is_not_there_fails_before_the_body() -> None:
    class Watcher(Extension):
        def around_step(self, x: int) -> Generator[None]:
            yield

    ran = []
    with pytest.raises(FixtureNotFound, match=r"Watcher.around_step wants 'x'"), Extensible([Watcher()]).staged("step"):
        ran.append("body")
    assert ran == []


def test_an_around_hook_of_every_stage_is_left_out_where_its_fixtures_are_not_alive() -> None:
    log = []

    class Watcher(Extension):
        def around_stage(self, x: int, stage: object) -> Generator[None]:
            log.append(f"enter {stage!r}")
            yield
            log.append(f"leave {stage!r}")

    extensible = Extensible([Watcher()])
    with extensible.staged("run"):
        with extensible.staged("step", {"x": 1}):
            pass
    assert log == ["enter <stage run > step>", "leave <stage run > step>"]


def test_an_around_hook_that_never_yields_is_an_error(at: At) -> None:
    class Never(Extension):
        def around_step(self) -> Generator[None]:  # never yields
            if False:
                yield

    ran = []
    with pytest.raises(HookError) as error, Extensible([Never()]).staged("step"):
        ran.append("body")
    assert ran == []
    assert str(error.value) == (
        "Never.around_step did not yield, so the stage would never run\n"
        f"  asked at     {at('never yields')}\n"
        "  an around-hook must have one bare `yield`, where the stage runs, and no @contextmanager"
    )


def test_an_around_hook_that_yields_twice_is_an_error(at: At) -> None:
    class Twice(Extension):
        def around_step(self) -> Generator[None]:  # yields twice
            yield
            yield

    ran = []
    with pytest.raises(HookError) as error, Extensible([Twice()]).staged("step"):
        ran.append("body")
    assert ran == ["body"]
    assert str(error.value) == (
        "Twice.around_step yields more than once\n"
        f"  asked at     {at('yields twice')}\n"
        "  an around-hook must have one bare `yield`, where the stage runs, and no @contextmanager"
    )


def test_an_around_hook_that_yields_twice_is_closed_before_the_error_is_told() -> None:
    log: list[str] = []

    class Twice(Extension):
        def around_step(self) -> Generator[None]:
            yield
            try:
                yield
            finally:
                log.append("closed")

    try:
        with Extensible([Twice()]).staged("step"):
            pass
    except HookError:
        log.append("told")
    assert log == ["closed", "told"]


def test_an_around_hook_that_yields_again_on_an_error_does_not_hide_the_error() -> None:
    class Twice(Extension):
        def around_step(self) -> Generator[None]:
            try:
                yield
            except ValueError:
                yield

    with pytest.raises(ValueError, match="body") as error, Extensible([Twice()]).staged("step"):
        raise ValueError("body")
    assert "Twice.around_step yields more than once" in error.value.__notes__[0]


def test_around_hooks_that_were_entered_are_left_when_a_later_one_fails() -> None:
    log: list[str] = []

    class Broken(Extension):
        def around_step(self) -> Generator[None]:
            raise ValueError("broken")
            yield

    with pytest.raises(ValueError, match="broken"), Extensible([Recording(log), Broken()]).staged("step"):
        log.append("body")
    assert log == ["enter around", "ValueError in around"]


def test_an_around_hook_is_told_of_the_error_of_a_post_hook() -> None:
    log: list[str] = []

    class Broken(Extension):
        def post_step(self) -> None:
            raise KeyError

    with pytest.raises(KeyError), Extensible([Recording(log), Broken()]).staged("step"):
        pass
    assert log == ["enter around", "KeyError in around"]


def test_fixtures_are_still_alive_when_an_around_hook_is_left() -> None:
    seen = []

    class Watcher(Extension):
        def around_step(self, fixtures: dict[str, int]) -> Generator[None]:
            yield
            seen.append(fixtures["x"])

    extensible = Extensible([Watcher()])
    with extensible.staged("step"):
        extensible.fixtures["x"] = 1
    assert seen == [1]
