"""The core's rows of seeds/train-manager.txt in shared/capabilities.md: T01 to T13."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from train_manager import (
    Extensible,
    Extension,
    FixtureExists,
    FixtureNotFound,
    always,
    staged,
)
from train_manager.extensions import default_extensions


def run_the_documents_example(extension: Extension) -> None:
    class MyExtensibleClass(Extensible):
        extensions = [extension]

        def my_extensible_method(self) -> None:
            with staged("my_stage", {"var_a": 1}):
                self.fixtures["var_b"] = 2

    MyExtensibleClass().my_extensible_method()


THE_DOCUMENTS_EXAMPLE = """
from train_manager import Extensible, Extension, staged

class MyExtension(Extension):
    def pre_stage(self, var_a):
        print('Before the stage')
    def post_stage(self, var_a, var_b):
        print('After the stage: {var_a}, {var_b}')

class MyExtensibleClass(Extensible):
    extensions = [MyExtension()]
    def my_extensible_method(self):
        with staged('my_stage', {'var_a': 1}):
            self.fixtures['var_b'] = 2

MyExtensibleClass().my_extensible_method()
"""


def test_t01_the_documents_example_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(THE_DOCUMENTS_EXAMPLE, {"__name__": "example"})
    assert capsys.readouterr().out == "Before the stage\nAfter the stage: {var_a}, {var_b}\n"


def test_t01_a_recording_twin_of_the_example_receives_1_and_then_1_and_2() -> None:
    received: list[tuple[int, ...]] = []

    class Recording(Extension):
        def pre_stage(self, var_a: int) -> None:
            received.append((var_a,))

        def post_stage(self, var_a: int, var_b: int) -> None:
            received.append((var_a, var_b))

    run_the_documents_example(Recording())
    assert received == [(1,), (1, 2)]


def test_t02_code_is_injected_before_and_after_a_named_stage() -> None:
    log: list[str] = []

    class Injected(Extension):
        def pre_my_stage(self) -> None:
            log.append("before")

        def post_my_stage(self) -> None:
            log.append("after")

    extensible = Extensible([Injected()])
    with extensible.staged("my_stage"):
        log.append("during")
    with extensible.staged("other_stage"):
        log.append("elsewhere")
    assert log == ["before", "during", "after", "elsewhere"]


def test_t03_a_fixture_is_visible_to_hooks_of_its_stage_and_of_inner_stages() -> None:
    seen: list[tuple[str, int]] = []

    class Watcher(Extension):
        def post_outer(self, batch: int) -> None:
            seen.append(("outer", batch))

        def pre_inner(self, batch: int) -> None:
            seen.append(("inner", batch))

    extensible = Extensible([Watcher()])
    with extensible.staged("outer", {"batch": 7}), extensible.staged("inner"):
        pass
    assert seen == [("inner", 7), ("outer", 7)]


def test_t03_outside_of_its_stage_the_error_names_where_a_fixture_lives() -> None:
    extensible = Extensible()
    with extensible.staged("train_step_batch", {"loss": 0.3}):
        pass
    with pytest.raises(FixtureNotFound, match="reads 'loss', which ended with stage 'train_step_batch'"):
        extensible.fixtures["loss"]


def test_t04_hooks_name_any_subset_in_any_order_and_a_default_stands_in_for_what_is_absent() -> None:
    seen: list[tuple[Any, ...]] = []

    class Watcher(Extension):
        def post_step(self, c: int, a: int) -> None:
            seen.append((c, a))

        def pre_step(self, absent: str = "default", b: int = 0) -> None:
            seen.append((absent, b))

    with Extensible([Watcher()]).staged("step", {"a": 1, "b": 2, "c": 3}):
        pass
    assert seen == [("default", 2), (3, 1)]


def test_t05_a_fixture_set_inside_the_stage_is_visible_to_post_hooks_only() -> None:
    """That the check before the first step knows this comes with the check."""
    seen: list[tuple[int, int | None]] = []

    class Watcher(Extension):
        def pre_step(self, given: int, inside: int | None = None) -> None:
            seen.append((given, inside))

        def post_step(self, given: int, inside: int) -> None:
            seen.append((given, inside))

    extensible = Extensible([Watcher()])
    with extensible.staged("step", {"given": 1}):
        extensible.fixtures["inside"] = 2
    assert seen == [(1, None), (1, 2)]


def test_t06_a_fixture_lives_as_long_as_the_stage_that_defined_it_though_an_inner_one_modified_it() -> None:
    extensible = Extensible()
    with extensible.staged("outer", {"x": 1}):
        with extensible.staged("inner"):
            extensible.fixtures.modify("x", 2)
        assert extensible.fixtures["x"] == 2
    assert "x" not in extensible.fixtures


def test_t07_accidental_redefinition_is_refused_and_names_the_defining_stage_and_line() -> None:
    extensible = Extensible()
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith("# first"))
    with extensible.staged("outer"):
        extensible.fixtures["x"] = 1  # first
        with pytest.raises(FixtureExists, match="'x', which stage 'outer' has defined already") as error:
            with extensible.staged("inner", {"x": 2}):
                pass
        assert Path(error.value.defined_at).name == f"{Path(__file__).name}:{line}"
        assert dict(extensible.fixtures) == {"x": 1}


def test_t08_a_deliberate_change_works_by_modify_and_by_update() -> None:
    """That a change is logged comes with the log of changes (row F14)."""
    extensible = Extensible()
    with extensible.staged("step", {"x": 1, "y": 1}):
        extensible.fixtures.modify("x", 2)
        extensible.fixtures.update({"y": 3, "z": 4})
        assert dict(extensible.fixtures) == {"x": 2, "y": 3, "z": 4}


def normally(extensible: Extensible) -> None:
    with extensible.staged("step", {"x": 1}):
        extensible.fixtures["y"] = 2


def by_an_exception(extensible: Extensible) -> None:
    with suppress(ValueError), extensible.staged("step", {"x": 1}):
        extensible.fixtures["y"] = 2
        raise ValueError


def by_break(extensible: Extensible) -> None:
    for _ in range(2):
        with extensible.staged("step", {"x": 1}):
            break


def by_return(extensible: Extensible) -> None:
    with extensible.staged("step", {"x": 1}):
        return


def streaming(extensible: Extensible) -> Generator[int]:
    with extensible.staged("step", {"x": 1}):
        yield extensible.fixtures["x"]


def by_closing_a_generator(extensible: Extensible) -> None:
    generator = streaming(extensible)
    assert next(generator) == 1
    generator.close()


def by_abandoning_a_generator(extensible: Extensible) -> None:
    assert next(streaming(extensible)) == 1
    gc.collect()


@pytest.mark.parametrize(
    "leave",
    [normally, by_an_exception, by_break, by_return, by_closing_a_generator, by_abandoning_a_generator],
)
def test_t09_no_fixture_leaks_out_of_a_stage_however_it_is_left(leave: Callable[[Extensible], None]) -> None:
    extensible = Extensible()
    with extensible.staged("outer", {"kept": 0}):
        leave(extensible)
        assert dict(extensible.fixtures) == {"kept": 0}
    assert dict(extensible.fixtures) == {}


def test_t09_nothing_keeps_a_value_after_its_stage() -> None:
    class Value: ...

    class Watcher(Extension):
        def post_stage(self, value: Value) -> None: ...

    extensible = Extensible([Watcher()])
    with extensible.staged("step", {"value": Value()}):
        watched = weakref.ref(extensible.fixtures["value"])
    assert watched() is None


class Logging(Extension):
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def post_step(self) -> None:
        self.log.append(self.name)


def test_t10_an_extension_is_added_without_touching_the_methods_code() -> None:
    log: list[str] = []
    extensible = Extensible()
    normally(extensible)
    extensible.add_extension(Logging(log, "added"))
    normally(extensible)
    assert log == ["added"]


def test_t10_an_extension_runs_first_or_last_by_its_priority() -> None:
    log: list[str] = []
    extensible = Extensible([Logging(log, "middle")])
    for name, rank in [("last", 10), ("first", -10)]:
        extension = Logging(log, name)
        extension.priority = rank
        extensible.add_extension(extension)
    normally(extensible)
    assert log == ["first", "middle", "last"]


def test_t11_an_extension_keeps_state_from_stage_to_stage() -> None:
    class Counter(Extension):
        count = 0

        def post_step(self) -> None:
            self.count += 1

    counter = Counter()
    extensible = Extensible([counter])
    for _ in range(3):
        normally(extensible)
    assert counter.count == 3


def test_t12_default_extensions_are_a_dict_in_which_each_can_be_replaced_by_name() -> None:
    defaults = default_extensions()
    mine = Logging([], "mine")
    name = next(iter(defaults))
    extensible = Extensible({**defaults, name: mine})
    assert extensible[name] is mine
    view: Any = extensible.extensions
    assert set(view) == set(defaults)
    assert default_extensions() is not defaults


def test_t13_an_always_hook_gets_the_failure_and_neither_hides_nor_swallows_it() -> None:
    told: list[tuple[Any, ...]] = []

    class Notes(Extension):
        @always
        def post_step(self, exc_type: Any, exc_value: Any, traceback: Any) -> bool:
            told.append((exc_type, exc_value, traceback))
            return True

    with pytest.raises(ValueError, match="body") as error, Extensible([Notes()]).staged("step"):
        raise ValueError("body")
    ((exc_type, exc_value, traceback),) = told
    assert (exc_type, exc_value) == (ValueError, error.value)
    assert traceback is not None


def test_t13_an_always_hook_that_fails_itself_does_not_hide_the_failure() -> None:
    class Broken(Extension):
        @always
        def post_step(self) -> Iterator[None] | None:
            raise KeyError("in the hook")

    with pytest.raises(ValueError, match="body") as error, Extensible([Broken()]).staged("step"):
        raise ValueError("body")
    assert "KeyError: 'in the hook'" in error.value.__notes__[0]
