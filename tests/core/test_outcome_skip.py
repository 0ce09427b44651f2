from __future__ import annotations

import pytest

from train_manager import Extensible, Extension, SkipStage, always
from train_manager.core.outcome import Skip


class Skipper(Extension):
    def pre_step(self) -> None:
        raise SkipStage


def test_a_skip_leaves_out_the_body_and_the_remaining_hooks() -> None:
    ran = []

    class Later(Extension):
        def pre_step(self) -> None:
            ran.append("pre")

        def post_step(self) -> None:
            ran.append("post")

    extensible = Extensible([Skipper(), Later()])
    with pytest.raises(SkipStage), extensible.staged("step"):
        ran.append("body")
    assert ran == []


def test_always_hooks_run_at_a_skipped_stage_and_are_told_of_the_skip() -> None:
    told = []

    class Later(Extension):
        @always
        def post_step(self, exc_type: type[BaseException]) -> None:
            told.append(exc_type)

    with pytest.raises(SkipStage), Extensible([Skipper(), Later()]).staged("step"):
        pass
    assert told == [SkipStage]


def test_a_skip_knows_the_stage_whose_pre_hook_raised_it() -> None:
    extensible = Extensible([Skipper()])
    with pytest.raises(SkipStage) as skip, extensible.staged("run"), extensible.staged("step"):
        pass
    assert skip.value.path == ("run", "step")


def test_a_skip_from_the_body_is_of_no_stage() -> None:
    with pytest.raises(SkipStage) as skip, Extensible().staged("step"):
        raise SkipStage
    assert skip.value.path == ()


def test_a_skip_from_a_post_hook_is_of_no_stage() -> None:
    class Late(Extension):
        def post_step(self) -> None:
            raise SkipStage

    with pytest.raises(SkipStage) as skip, Extensible([Late()]).staged("step"):
        pass
    assert skip.value.path == ()


def test_an_error_of_an_always_hook_is_not_hidden_by_the_skip() -> None:
    class Broken(Extension):
        @always
        def post_step(self) -> None:
            raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"), Extensible([Skipper(), Broken()]).staged("step"):
        pass


def test_the_body_fails_with_an_error_though_a_hook_requests_to_skip() -> None:
    class Skipping(Extension):
        @always
        def post_step(self) -> None:
            raise SkipStage

    with pytest.raises(ValueError, match="body") as error, Extensible([Skipping()]).staged("step"):
        raise ValueError("body")
    assert not hasattr(error.value, "__notes__")


def test_a_request_to_skip_is_not_an_error_of_the_library() -> None:
    assert Skip.__mro__ == (Skip, Exception, BaseException, object)
