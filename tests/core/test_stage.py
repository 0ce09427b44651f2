from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Generator

import pytest

from train_manager import Extensible, Extension, always, provides
from train_manager.errors import FixtureExists, StageError

At = Callable[[str], str]


class Full(Extension):
    """A hook at each point of a stage."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def around_step(self) -> Generator[None]:
        self.log.append("enter")
        yield
        self.log.append("leave")

    def pre_step(self) -> None:
        self.log.append("pre")

    def post_step(self) -> None:
        self.log.append("post")

    @always
    def post_stage(self) -> None:
        self.log.append("always")


# ---- order -----------------------------------------------------------------------------------------------------------


def test_a_stage_runs_around_hooks_pre_hooks_body_post_hooks_and_around_hooks_again() -> None:
    log: list[str] = []
    with Extensible([Full(log)]).staged("step"):
        log.append("body")
    assert log == ["enter", "pre", "body", "post", "always", "leave"]


def test_after_a_failure_of_the_body_only_always_hooks_run() -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="body"), Extensible([Full(log)]).staged("step"):
        raise ValueError("body")
    assert log == ["enter", "pre", "always"]


def test_after_a_failure_of_a_pre_hook_the_body_and_the_other_hooks_do_not_run() -> None:
    log: list[str] = []

    class Broken(Extension):
        def pre_step(self) -> None:
            raise ValueError("pre")

    with pytest.raises(ValueError, match="pre"), Extensible([Broken(), Full(log)]).staged("step"):
        log.append("body")
    assert log == ["enter", "always"]


def test_after_a_failure_of_a_post_hook_only_always_hooks_run() -> None:
    log: list[str] = []

    class Broken(Extension):
        def post_step(self) -> None:
            raise ValueError("post")

    with pytest.raises(ValueError, match="post"), Extensible([Broken(), Full(log)]).staged("step"):
        log.append("body")
    assert log == ["enter", "pre", "body", "always"]


def test_hooks_run_only_at_their_own_stage() -> None:
    log: list[str] = []
    with Extensible([Full(log)]).staged("run"):
        log.append("body")
    assert log == ["body", "always"]


def test_always_hooks_are_told_what_failed() -> None:
    told: list[object] = []

    class Notes(Extension):
        @always
        def post_step(self, exc_type: object, exc_value: object, traceback: object) -> None:
            told.extend([exc_type, exc_value, traceback])

    extensible = Extensible([Notes()])
    with extensible.staged("step"):
        pass
    assert told == [None, None, None]
    with pytest.raises(ValueError, match="body") as error, extensible.staged("step"):
        raise ValueError("body")
    assert told[3:5] == [ValueError, error.value]
    assert told[5] is not None
    assert extensible.fixtures["exc_value"] is None


# ---- ways out --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_after_an_exception_the_fixtures_are_those_before(error: type[BaseException]) -> None:
    extensible = Extensible()
    with extensible.staged("run", {"x": 1}):
        raised = error()
        with pytest.raises(error) as caught, extensible.staged("step", {"y": 2}):
            extensible.fixtures["z"] = 3
            raise raised
        assert caught.value is raised
        assert dict(extensible.fixtures) == {"x": 1}
        assert extensible.fixtures["stage"].path == ("run",)


def test_break_and_return_leave_a_stage_and_run_its_post_hooks() -> None:
    log: list[str] = []
    extensible = Extensible([Full(log)])

    def returning() -> None:
        with extensible.staged("step", {"x": 1}):
            return

    returning()
    for _ in range(3):
        with extensible.staged("step", {"x": 1}):
            break
    assert log == 2 * ["enter", "pre", "post", "always", "leave"]
    assert dict(extensible.fixtures) == {}


class Streaming(Extensible):
    def numbers(self, stage: str = "stream") -> Generator[int]:
        with self.staged(stage, {f"of_{stage}": 1}):
            yield 1
            yield 2


def test_a_closed_generator_leaves_its_stage() -> None:
    streaming = Streaming()
    numbers = streaming.numbers()
    next(numbers)
    assert dict(streaming.fixtures) == {"of_stream": 1}
    numbers.close()
    assert dict(streaming.fixtures) == {}


def test_a_generator_that_nobody_refers_to_any_more_leaves_its_stage() -> None:
    streaming = Streaming()
    with streaming.staged("run"):
        for _ in streaming.numbers():
            break
        gc.collect()
        assert dict(streaming.fixtures) == {}
        assert streaming.fixtures["stage"].path == ("run",)


def test_interleaved_stages_are_unwound_and_the_error_names_both(at: At) -> None:
    streaming = Streaming()
    with streaming.staged("run", {"x": 1}):
        with pytest.raises(StageError) as error:
            with streaming.staged("outer"):
                numbers = Interleaved.opened(streaming)
        assert dict(streaming.fixtures) == {"x": 1}
        assert streaming.fixtures["stage"].path == ("run",)
    assert str(error.value) == (
        "stage 'outer' ended while stage 'inner' inside it was still open\n"
        f"  asked at     {at('opens inner')}\n"
        "  open stages  run > outer > inner\n"
        "  a generator opened it and was left half-way: finish or close() it inside the outer stage"
    )
    numbers.close()
    assert dict(streaming.fixtures) == {}


class Interleaved:
    @classmethod
    def opened(cls, extensible: Extensible) -> Generator[None]:
        generator = cls.stage(extensible)
        next(generator)
        return generator

    @staticmethod
    def stage(extensible: Extensible) -> Generator[None]:
        with extensible.staged("inner", {"y": 1}):  # opens inner
            yield


def test_two_generators_that_are_finished_in_the_wrong_order_leave_nothing_open() -> None:
    streaming = Streaming()
    first, second = streaming.numbers("one"), streaming.numbers("two")
    next(first)
    next(second)
    with pytest.raises(StageError, match="stage 'one' ended while stage 'two' inside it was still open"):
        list(first)
    assert dict(streaming.fixtures) == {}
    assert list(second) == [2]
    assert streaming.fixtures["stage"] is None


def test_always_hooks_of_a_stage_that_is_unwound_run_and_are_told_why() -> None:
    told = []

    class Notes(Extension):
        @always
        def post_inner(self, exc_value: StageError, y: int) -> None:
            told.append((str(exc_value).splitlines()[0], y))

        def post_outer(self) -> None:
            told.append(("never", 0))

    extensible = Extensible([Notes()])
    with pytest.raises(StageError), extensible.staged("outer"):
        kept = Interleaved.opened(extensible)
    assert told == [("stage 'outer' ended while stage 'inner' inside it was still open", 1)]
    kept.close()


def test_the_bodys_error_goes_before_the_unfinished_inner_stage() -> None:
    extensible = Extensible()
    with pytest.raises(ValueError, match="body") as error, extensible.staged("outer"):
        kept = Interleaved.opened(extensible)
        raise ValueError("body")
    assert len(error.value.__notes__) == 1
    assert "stage 'outer' ended while stage 'inner' inside it was still open" in error.value.__notes__[0]
    kept.close()


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_hook_that_opens_a_stage_of_its_caller_is_refused(at: At) -> None:
    class Opener(Extension):
        def pre_step(self, extensible: Extensible) -> None:
            with extensible.staged("other"):  # opened by a hook
                pass

    extensible = Extensible({"opener": Opener()})
    with pytest.raises(StageError) as error, extensible.staged("step"):
        pass
    assert str(error.value) == (
        "Opener.pre_step opens stage 'other' of the extensible that is calling it\n"
        f"  asked at     {at('opened by a hook')}\n"
        "  open stages  step\n"
        "  hooks run around stages and open none; open the stage in a method of the extensible"
    )
    assert error.value.__notes__ == ["in hook Opener.pre_step of extension 'opener', at stage step"]


@pytest.mark.parametrize("kind", ["before", "after"])
def test_an_around_hook_opens_no_stage_either(kind: str) -> None:
    class Opener(Extension):
        def around_step(self, extensible: Extensible) -> Generator[None]:
            if kind == "before":
                extensible.staged("other").__enter__()
            yield
            extensible.staged("other").__enter__()

    extensible = Extensible([Opener()])
    with pytest.raises(StageError, match=r"Opener.around_step opens stage 'other'"), extensible.staged("step"):
        pass
    assert extensible.fixtures["stage"] is None


def test_a_hook_may_open_stages_of_another_extensible() -> None:
    other = Extensible()
    seen: list[tuple[str, ...]] = []

    class Opener(Extension):
        def pre_step(self) -> None:
            with other.staged("inside"):
                seen.append(other.fixtures["stage"].path)

    with Extensible([Opener()]).staged("step"):
        pass
    assert seen == [("inside",)]


def test_one_stage_object_opens_once() -> None:
    extensible = Extensible()
    stage = extensible.staged("step")
    for _ in range(2):
        try:
            with stage:
                pass
        except StageError as error:
            refused = str(error)
    assert refused.startswith("stage 'step' was opened a second time from one `staged(...)`\n")
    assert refused.endswith("\n  call `self.staged(...)` anew in each `with`")


@pytest.mark.parametrize("holds", ["as", "fixture"])
def test_a_stage_that_is_kept_stays_as_it_has_ended(holds: str) -> None:
    extensible = Extensible()
    with extensible.staged("run"):
        if holds == "as":
            with extensible.staged("step", {"x": 1}) as stage:
                pass
        else:
            with extensible.staged("step", {"x": 1}):
                stage = extensible.fixtures["stage"]
        with extensible.staged("step", {"x": 2}):
            assert extensible.fixtures["stage"] is not stage
            assert not stage.is_open
            assert stage.path == ("run", "step")


def test_a_stage_owns_nothing_of_the_last_stage_of_its_name() -> None:
    extensible = Extensible()
    with extensible.staged("step", {"x": 1}):
        extensible.fixtures["y"] = 2
    with extensible.staged("step"):
        assert extensible.fixtures["stage"].owned == ()
        assert dict(extensible.fixtures) == {}


def test_two_stages_that_were_asked_for_at_once_are_two() -> None:
    extensible = Extensible()
    with extensible.staged("step"):
        pass
    outer, inner = extensible.staged("step", {"x": 1}), extensible.staged("step", {"x": 2})
    with outer:
        with inner:
            assert extensible.fixtures["x"] == 2
        assert extensible.fixtures["x"] == 1


def test_a_stage_that_was_asked_for_has_the_extensions_of_when_it_opens() -> None:
    seen: list[int] = []
    extensible = Extensible()
    stage = extensible.staged("step", {"x": 1})
    extensible.add_extension(pre_step=lambda x: seen.append(x))
    with stage:
        pass
    assert seen == [1]


def test_a_stage_that_was_taken_early_hides_what_a_stage_around_it_owns_that_was_taken_later() -> None:
    extensible = Extensible()
    with extensible.staged("step"):
        pass
    early = extensible.staged("step", {"x": 1})
    with extensible.staged("step", {"x": 2}):
        with early:
            assert extensible.fixtures["x"] == 1
        assert extensible.fixtures["x"] == 2


def test_no_attribute_can_be_set_on_a_stage_since_fixtures_are_the_place_for_values() -> None:
    with Extensible().staged("step") as stage, pytest.raises(AttributeError):
        stage.note = 1  # type: ignore[attr-defined]


def test_an_extension_that_was_removed_is_not_kept_by_the_stages_it_had_hooks_in() -> None:
    class Watching(Extension):
        @provides("seen")
        def post_step(self) -> int:
            return 1

    extensible = Extensible([Watching()])
    with extensible.staged("step"):
        pass
    removed = weakref.ref(extensible.remove_extension("watching"))
    gc.collect()
    assert removed() is None


class Logging:
    """A value that opens a stage, or writes a fixture, as it goes."""

    def __init__(self, extensible: Extensible, *, opens: bool) -> None:
        self.extensible, self.opens = extensible, opens

    def __del__(self) -> None:
        if self.opens:
            with self.extensible.staged("log", {"value": 1}):
                pass
        else:
            self.extensible.fixtures["value"] = 1


@pytest.mark.parametrize("opens", [True, False])
def test_a_value_that_uses_fixtures_as_it_goes_leaves_nothing_alive(opens: bool) -> None:
    extensible = Extensible()
    for _ in range(2):
        with extensible.staged("run", {"other": 1}):
            extensible.fixtures["value"] = Logging(extensible, opens=opens)
        assert dict(extensible.fixtures) == {}


def test_a_stage_with_hooks_is_not_left_by_another_thread() -> None:
    ran: list[str] = []
    extensible = Extensible([Extension.of(post_step=lambda: ran.append("post"))])
    stage = extensible.staged("step", {"x": 1})
    stage.__enter__()
    raised: list[BaseException] = []

    def leave() -> None:
        try:
            stage.__exit__(None, None, None)
        except StageError as error:
            raised.append(error)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert (dict(extensible.fixtures), ran) == ({"x": 1}, [])
    stage.__exit__(None, None, None)
    assert (dict(extensible.fixtures), ran) == ({}, ["post"])


def test_two_tasks_whose_stages_interleave_get_the_error_about_the_inner_one() -> None:
    extensible = Extensible()

    async def work(name: str) -> None:
        with extensible.staged(name):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("first"), work("second"))

    with pytest.raises(StageError, match="stage 'first' ended while stage 'second' inside it was still open"):
        asyncio.run(both())
    assert extensible.fixtures.path == ()


def test_a_stage_spans_an_await_of_its_own_task() -> None:
    extensible = Extensible()

    async def owner() -> int:
        with extensible.staged("step", {"x": 1}):
            await asyncio.sleep(0)
            value: int = extensible.fixtures["x"]
            return value

    assert asyncio.run(owner()) == 1


# ---- hooks that change the hooks -------------------------------------------------------------------------------------


def test_a_refused_definition_as_the_stage_opens_runs_no_hook() -> None:
    log: list[str] = []
    extensible = Extensible([Full(log)])
    with extensible.staged("run", {"x": 1}):
        log.clear()
        with pytest.raises(FixtureExists), extensible.staged("step", {"x": 2}):
            log.append("body")
        assert log == []


def test_what_is_kept_is_what_the_last_hook_made_of_it_and_nothing_else_outlives_the_stage() -> None:
    extensible = Extensible([Extension.of(post_step=lambda fixtures: fixtures.modify("x", 2))])
    with extensible.staged("step", {"x": 1, "y": 1}) as stage:
        stage.keep("x")
    assert dict(stage.kept) == {"x": 2}


def test_a_stage_without_hooks_keeps_what_it_is_asked_to() -> None:
    with Extensible().staged("step", {"x": 1}) as stage:
        stage.keep("x")
    assert stage.kept["x"] == 1
