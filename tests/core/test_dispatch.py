from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rotation import share_of
from train_manager import Extensible, Extension, always, every, fixture, modifies, provides
from train_manager.core.calls import sometimes, with_parameters
from train_manager.core.dispatch import CellOf, HookSequence, StageFunction
from train_manager.core.fixtures import Fixtures
from train_manager.core.store import Options
from train_manager.errors import FixtureNotFound
from train_manager.telling.tracebacks import FULL_TRACEBACK


class Watcher(Extension):
    def pre_step(self, x: int, y: int) -> None: ...

    @provides("z")
    def post_step(self, x: int) -> int:
        return x

    def around_step(self) -> Any:
        yield


class Nameless(Extension):
    def post_step(self) -> None: ...


class Norm(Extension):
    @fixture("step")
    def norm(self, x: int) -> int:
        return abs(x)

    def post_step(self, norm: int) -> None: ...


class Optional(Extension):
    def post_step(self, x: int = 0) -> None: ...


class Stepper(Extensible):
    def step(self) -> None:
        with self.staged("step", {"x": 1, "y": 2}):
            pass


def test_the_text_calls_plain_hooks_by_position_and_hands_the_rest_to_the_stage() -> None:
    assert Stepper([Watcher(), Nameless(), Optional()]).explain("step", format="code") == (
        "def pre_step(stage, store):\n"
        "    store.running = hook_0\n"
        "    stage._enter(hook_0)  # Watcher.around_step\n"
        "    store.running = hook_1\n"
        "    if call_1(cell_x.value, cell_y.value) is not None: stage._refuse_return(hook_1)  # Watcher.pre_step\n"
        "    store.running = None\n"
        "\n"
        "def post_step(stage, store):\n"
        "    store.running = hook_0\n"
        "    stage._call(hook_0)  # Watcher.post_step\n"
        "    store.running = hook_1\n"
        "    if call_1() is not None: stage._refuse_return(hook_1)  # Nameless.post_step\n"
        "    store.running = hook_2\n"
        "    if call_2(x=cell_x.value if hasattr(cell_x, 'value') else default_2_x) is not None: "
        "stage._refuse_return(hook_2)  # Optional.post_step\n"
        "    store.running = None\n"
    )


def test_lazy_fixtures_are_asked_for_through_the_stage() -> None:
    assert Stepper([Norm()]).explain("step", format="code") == (
        "def post_step(stage, store):\n"
        "    store.running = hook_0\n"
        "    stage._call(hook_0)  # Norm.post_step\n"
        "    store.running = None\n"
    )


def test_the_stage_itself_is_handed_over_as_it_is() -> None:
    hook = Extension.of(pre_step=lambda stage: None)
    assert "call_0(stage)" in Stepper([hook]).explain("step", format="code")


def test_the_code_of_a_stage_without_hooks_is_empty() -> None:
    assert Stepper().explain("step", format="code") == ""


def test_code_is_shown_of_a_named_stage() -> None:
    with pytest.raises(ValueError, match=r'format="code" takes the name of a stage'):
        Stepper().explain(format="code")


class Failing(Extension):
    def pre_step(self, x: int) -> None:
        raise KeyError("x")


def test_a_full_traceback_shows_the_line_that_called_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FULL_TRACEBACK, "1")
    with pytest.raises(KeyError) as error:
        Stepper([Failing()]).step()
    lines = [entry.line for entry in traceback.extract_tb(error.value.__traceback__)]
    assert "if call_0(cell_x.value) is not None: stage._refuse_return(hook_0)  # Failing.pre_step" in lines
    assert lines[-1] == 'raise KeyError("x")'


def test_a_key_error_of_the_hook_is_not_taken_for_a_fixture_that_is_missing() -> None:
    with pytest.raises(KeyError) as error:
        Stepper([Failing()]).step()
    assert not isinstance(error.value, FixtureNotFound)


def test_a_lazy_fixture_of_a_removed_extension_is_still_computed() -> None:
    class Outer(Extensible):
        def outer(self) -> None:
            with self.staged("outer", {"x": -3}):
                self.remove_extension("provider")
                with self.staged("inner"):
                    pass

    class Provider(Extension):
        @fixture("outer")
        def norm(self, x: int) -> int:
            return abs(x)

    seen: list[int] = []
    Outer([Provider(), Extension.of(pre_inner=lambda norm: seen.append(norm))]).outer()
    assert seen == [3]


# ---- the loop that the generated function stands for ---------------------------------------------------------------


def looped(sequence: HookSequence, cell_of: CellOf) -> StageFunction:
    """Do what the generated function does, hook by hook, each through the stage."""

    def run(stage: Any, store: Any) -> None:
        began = perf_counter()
        for schedule in sequence.schedules:
            schedule.opened(stage, store.value("fixtures"))
        for hook in sequence.hooks:
            store.running = hook
            if hook.kind == "around":
                stage._enter(hook)
            else:
                stage._call(hook)
        store.running = None
        if sequence.is_timed:
            store.hook_seconds += perf_counter() - began

    return run


@contextmanager
def loops_instead_of_functions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HookSequence, "function", looped)
        yield


class Noting(Extension):
    """Hooks of every form, which note what they were called with."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def note(self, *values: Any) -> None:
        self.notes.append((type(self).__name__, *values))


class Plain(Noting):
    def pre_step(self, x: int, stage: Any) -> None:
        self.note("pre", x, stage.path)

    def post_step(self, x: int, y: int) -> None:
        self.note("post", x, y)


class WithDefault(Noting):
    def post_step(self, x: int, absent: int = 7) -> None:
        self.note(x, absent)


class WithRest(Noting):
    def post_step(self, **rest: int) -> None:
        self.note(sorted(rest.items()))


class Around(Noting):
    def around_step(self, x: int) -> Iterator[None]:
        self.note("in", x)
        try:
            yield
        finally:
            self.note("out")


class Providing(Noting):
    @provides("made")
    def pre_step(self, x: int) -> int:
        return x + 1


class Modifying(Noting):
    @modifies("x")
    def pre_step(self, x: int) -> int:
        return x * 2


class Lazy(Noting):
    @fixture("step")
    def lazy(self, x: int) -> Iterator[int]:
        self.note("computed", x)
        yield -x
        self.note("cleaned up")

    def post_step(self, lazy: int) -> None:
        self.note(lazy)


class Scheduled(Noting):
    @every(2)
    def post_step(self, x: int) -> None:
        self.note(x)


class Everywhere(Noting):
    def post_stage(self, made: int) -> None:
        self.note(made)


class AlwaysHook(Noting):
    @always
    def post_step(self, exc_value: BaseException | None) -> None:
        self.note(repr(exc_value))


class Missing(Noting):
    def post_step(self, made: int, gone: int) -> None: ...


class Raising(Noting):
    def pre_step(self, x: int) -> None:
        raise AttributeError("of the hook itself")


KINDS: list[Callable[[list[Any]], Extension]] = [
    Plain, WithDefault, WithRest, Around, Providing, Modifying, Lazy, Scheduled, Everywhere, AlwaysHook, Missing,
    Raising,
]  # fmt: skip


class Timed(Extensible):
    """Its stages are opened from outside, so no check keeps a mistake from its hook."""

    _options = Options(times_hooks=True)


def notes_of(kinds: list[Callable[[list[Any]], Extension]]) -> list[Any]:
    """What three stages with such extensions note, errors and their notes included."""
    notes: list[Any] = []
    stepper = Timed([kind(notes) for kind in kinds])
    for _ in range(3):
        try:
            with stepper.staged("step", {"x": 1, "y": 2}):
                pass
        except Exception as error:
            notes.append((repr(error), str(error), getattr(error, "__notes__", [])))
        notes.append((dict(stepper.fixtures), stepper._store.running, stepper._store.hook_seconds >= 0))
    return notes


@settings(max_examples=share_of(150), deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(KINDS), max_size=6, unique=True))
def test_the_generated_function_does_what_a_loop_over_the_hooks_does(kinds: Any) -> None:
    with loops_instead_of_functions():
        expected = notes_of(kinds)

    assert notes_of(kinds) == expected


class ByName(Extension):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def post_step(self, x: int, *, y: int = 7, absent: int = 8) -> None:
        self.seen.append((x, y, absent))


def test_a_parameter_with_a_default_that_is_by_name_only_is_written_out() -> None:
    stepper = Stepper([extension := ByName()])
    stepper.step()

    assert extension.seen == [(1, 2, 8)]
    assert "absent=cell_absent.value if hasattr(cell_absent, 'value') else default_0_absent" in stepper.explain(
        "step", format="code"
    )


class Seldom(Extension):
    """Provide a fixture in the steps that are told."""

    def __init__(self) -> None:
        self.is_told = False

    def pre_step(self, fixtures: Fixtures) -> None:
        if self.is_told:
            fixtures.define("z", 3)


def test_a_hook_made_of_names_is_written_out_and_gets_those_that_are_alive() -> None:
    seen: list[object] = []
    hook = with_parameters(["x", sometimes("y"), sometimes("z")], lambda values: seen.append(dict(values)))
    stepper = Stepper([seldom := Seldom(), Extension.of(post_step=hook)])
    for seldom.is_told in (False, True):
        stepper.step()

    assert seen == [{"x": 1, "y": 2}, {"x": 1, "y": 2, "z": 3}]
    assert "stage._call" not in stepper.explain("step", format="code")
