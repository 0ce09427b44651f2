from __future__ import annotations

import traceback
from typing import Any

import pytest

from train_manager import Extensible, Extension, FixtureNotFound, fixture, provides
from train_manager.core.dispatch import Side


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


def test_a_side_that_does_nothing_is_false() -> None:
    assert not Side("pre_step", ())
    assert Side("pre_step", (), promises=True)


def test_the_text_calls_by_position_what_can_be_and_hands_the_rest_to_the_stage() -> None:
    assert Stepper([Watcher(), Nameless(), Optional()]).explain("step", format="code") == (
        "def pre_step(stage, store):\n"
        "    store.running = hook_0\n"
        "    stage._enter(hook_0)  # Watcher.around_step\n"
        "    store.running = hook_1\n"
        "    call_1(cell_x.value, cell_y.value)  # Watcher.pre_step\n"
        "    store.running = None\n"
        "\n"
        "def post_step(stage, store):\n"
        "    store.running = hook_0\n"
        "    stage._call(hook_0)  # Watcher.post_step\n"
        "    store.running = hook_1\n"
        "    call_1()  # Nameless.post_step\n"
        "    store.running = hook_2\n"
        "    stage._call(hook_2)  # Optional.post_step\n"
        "    store.running = None\n"
    )


def test_what_is_computed_on_demand_is_promised_first_and_asked_for_through_the_stage() -> None:
    assert Stepper([Norm()]).explain("step", format="code") == (
        "def pre_step(stage, store):\n"
        "    stage._promise()\n"
        "    store.running = None\n"
        "\n"
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


def test_an_error_of_a_hook_shows_the_line_that_called_it() -> None:
    with pytest.raises(KeyError) as error:
        Stepper([Failing()]).step()
    lines = [entry.line for entry in traceback.extract_tb(error.value.__traceback__)]
    written_out = "call_0(cell_x.value)  # Failing.pre_step"
    assert written_out in lines or "stage._call(hook)" in lines
    assert lines[-1] == 'raise KeyError("x")'


def test_a_key_error_of_the_hook_is_not_taken_for_a_fixture_that_is_missing() -> None:
    with pytest.raises(KeyError) as error:
        Stepper([Failing()]).step()
    assert not isinstance(error.value, FixtureNotFound)


class Gone(Extension):
    def post_step(self, x: int, gone: int) -> None: ...


def test_a_fixture_that_is_missing_is_told_as_ever(at: Any) -> None:
    with pytest.raises(FixtureNotFound, match=r"Gone.post_step wants 'gone', which no open stage provides"):
        Stepper([Gone()]).step()


def test_what_a_removed_extension_has_promised_is_still_computed() -> None:
    class Outer(Extensible):
        def outer(self) -> None:
            with self.staged("outer", {"x": -3}):
                self.remove_extension("promiser")
                with self.staged("inner"):
                    pass

    class Promiser(Extension):
        @fixture("outer")
        def norm(self, x: int) -> int:
            return abs(x)

    seen: list[int] = []
    Outer([Promiser(), Extension.of(pre_inner=lambda norm: seen.append(norm))]).outer()
    assert seen == [3]
