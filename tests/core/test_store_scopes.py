from __future__ import annotations

from train_manager import Extensible
from train_manager.core.stage import Stage


def test_the_stage_fixture_tells_name_path_and_depth() -> None:
    extensible = Extensible()
    with extensible.staged("run"):
        with extensible.staged("step"):
            stage: Stage = extensible.fixtures["stage"]
            assert (stage.name, stage.path, stage.depth) == ("step", ("run", "step"), 2)


def test_no_stage_is_none() -> None:
    extensible = Extensible()

    assert extensible.fixtures["stage"] is None


def test_the_stage_around_is_the_stage_again_when_the_inner_one_has_ended() -> None:
    extensible = Extensible()
    with extensible.staged("run") as outer:
        with extensible.staged("step"):
            pass
        assert extensible.fixtures["stage"] is outer
    assert extensible.fixtures["stage"] is None


def test_a_recursion_has_the_name_twice_in_its_path() -> None:
    extensible = Extensible()
    with extensible.staged("visit"):
        with extensible.staged("visit") as inner:
            assert inner.path == ("visit", "visit")


def test_a_stage_still_knows_its_path_when_it_has_ended() -> None:
    extensible = Extensible()
    with extensible.staged("run"), extensible.staged("step") as stage:
        pass
    assert stage.path == ("run", "step")
    assert not stage.is_open


def test_a_stage_shows_its_path() -> None:
    extensible = Extensible()
    with extensible.staged("run"), extensible.staged("step") as stage:
        assert repr(stage) == "<stage run > step>"
