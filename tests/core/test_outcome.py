from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from train_manager import Extensible, Extension, SkipStage, always
from train_manager.core.outcome import Failures, Skip

At = Callable[[str], str]


class Broken(Extension):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @always
    def post_step(self) -> None:
        raise self.error  # a broken hook


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


# ---- the rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "hook", "comes_out"),
    [
        (ValueError("body"), KeyError("hook"), "body"),
        (ValueError("body"), KeyboardInterrupt(), "hook"),
        (ValueError("body"), SystemExit(), "hook"),
        (KeyboardInterrupt(), ValueError("hook"), "body"),
        (KeyboardInterrupt(), SystemExit(), "body"),
        (SkipStage(), ValueError("hook"), "hook"),
        (GeneratorExit(), ValueError("hook"), "hook"),
        (ValueError("body"), SkipStage(), "body"),
        (SkipStage(), KeyboardInterrupt(), "hook"),
        (GeneratorExit(), SkipStage(), "body"),
        (StopIteration(), ValueError("hook"), "body"),
    ],
)
def test_the_weightiest_comes_out_and_among_equals_the_bodys(
    body: BaseException, hook: BaseException, comes_out: str
) -> None:
    failures = Failures("step", body)
    failures.add(hook)
    assert failures.outcome() is (body if comes_out == "body" else hook)


def test_a_request_to_skip_is_not_in_a_group_and_not_a_note() -> None:
    failures = Failures("step", Skip())
    failures.add(ValueError("first"))
    failures.add(KeyError("second"))
    outcome = failures.outcome()
    assert isinstance(outcome, ExceptionGroup)
    assert [type(error) for error in outcome.exceptions] == [ValueError, KeyError]
    assert notes(outcome) == []


def test_errors_are_told_apart_by_identity_though_their_class_has_its_own_equality() -> None:
    class Equal(Exception):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("errors are not compared")

        __hash__ = Exception.__hash__

    failures = Failures("step", Equal("body"))
    failures.add(Equal("hook"))
    assert str(failures.outcome()) == "body"


def test_always_hooks_are_told_what_failed_first() -> None:
    failures = Failures("step")
    first = ValueError("first")
    failures.add(first)
    failures.add(KeyboardInterrupt())
    assert failures.first() is first


# ---- in a stage ------------------------------------------------------------------------------------------------------


def test_the_bodys_error_comes_out_with_the_hooks_as_a_note(at: At) -> None:
    extensible = Extensible({"broken": Broken(KeyError("no room"))})
    with pytest.raises(ValueError, match="body") as error, extensible.staged("run"), extensible.staged("step"):
        raise ValueError("body")
    assert notes(error.value) == [
        f"also failed at {at('a broken hook')}: KeyError: 'no room'\n"
        "  in hook Broken.post_step of extension 'broken', at stage run > step"
    ]


def test_the_error_of_a_hook_says_which_hook_it_was_and_where() -> None:
    extensible = Extensible({"broken": Broken(KeyError("no room"))})
    with pytest.raises(KeyError) as error, extensible.staged("run"), extensible.staged("step"):
        pass
    assert notes(error.value) == ["in hook Broken.post_step of extension 'broken', at stage run > step"]


def test_the_error_of_an_own_hook_says_so() -> None:
    class Worker(Extensible):
        def pre_step(self) -> None:
            raise ValueError

    with pytest.raises(ValueError) as error, Worker().staged("step"):  # noqa: PT011
        pass
    assert notes(error.value) == ["in hook Worker.pre_step of the extensible itself, at stage step"]


def test_two_errors_of_hooks_come_out_as_a_group_and_each_says_which_hook_it_was() -> None:
    extensible = Extensible({"one": Broken(KeyError("no room")), "two": Broken(ValueError("no time"))})
    with pytest.raises(ExceptionGroup) as group, extensible.staged("step"):
        pass
    assert str(group.value) == "2 hooks of stage 'step' failed (2 sub-exceptions)"
    assert [notes(error) for error in group.value.exceptions] == [
        ["in hook Broken.post_step of extension 'one', at stage step"],
        ["in hook Broken.post_step of extension 'two', at stage step"],
    ]


def test_ctrl_c_in_a_hook_stays_ctrl_c_and_the_bodys_error_is_a_note_on_it(at: At) -> None:
    extensible = Extensible({"broken": Broken(KeyboardInterrupt())})
    with pytest.raises(KeyboardInterrupt) as error, extensible.staged("step"):
        raise ValueError("body")  # the body fails
    assert notes(error.value) == [
        "in hook Broken.post_step of extension 'broken', at stage step",
        f"also failed at {at('the body fails')}: ValueError: body",
    ]


def test_a_hook_that_raises_the_stages_error_again_changes_nothing() -> None:
    class Again(Extension):
        @always
        def post_step(self, exc_value: BaseException) -> None:
            raise exc_value

    extensible = Extensible({"pre": BrokenBefore(), "again": Again()})
    with pytest.raises(ValueError, match="before") as error, extensible.staged("step"):
        pass
    assert type(error.value) is ValueError


class BrokenBefore(Extension):
    def pre_step(self) -> None:
        raise ValueError("before")


def test_a_traceback_does_not_get_longer_with_every_stage_it_leaves() -> None:
    class Around(Extension):
        def around_stage(self) -> Generator[None]:
            try:
                yield
            finally:
                pass

        @always
        def post_stage(self, exc_value: BaseException) -> None: ...

    def length(depth: int) -> int:
        extensible = Extensible([Around()])

        def nest(left: int) -> None:
            with extensible.staged("step"):
                if not left:
                    raise ValueError
                nest(left - 1)

        try:
            nest(depth)
        except ValueError as error:
            count, entry = 0, error.__traceback__
            while entry is not None:
                count, entry = count + 1, entry.tb_next
            return count
        raise AssertionError("it fails")

    assert length(5) - length(0) == 5
