"""``@modifies`` of a fixture that the loop does not look at any more."""

from __future__ import annotations

from tests.checker.checking import At, Loop, mistake
from train_manager import Extension, modifies
from train_manager.checker.too_late import TooLate
from train_manager.core.store import Options
from train_manager.errors import HookError


class Steps(Loop):
    _options = Options(
        too_late=(
            TooLate(("loss",), "it was summed before", "modify it at post_forward", frozenset({"post_step"})),
            TooLate(("epoch_num",), "the loop counts it", "count for yourself"),
        )
    )


def test_a_modifier_that_comes_too_late_is_found(at: At) -> None:
    class Half(Extension):
        @modifies("loss")  # too late
        def post_step(self, loss: float) -> float:
            return loss / 2

    found = mistake(Half(), Steps)
    assert isinstance(found, HookError)
    assert str(found) == (
        "Half.post_step modifies 'loss' too late: it was summed before\n"
        f"  asked at     {at('too late')}\n"
        "  modify it at post_forward"
    )


def test_a_modifier_of_a_read_only_fixture_is_found_at_any_point(at: At) -> None:
    class Count(Extension):
        @modifies("epoch_num")  # read-only
        def pre_step(self, epoch_num: int) -> int:
            return epoch_num + 1

    assert str(mistake(Count(), Steps)) == (
        "Count.pre_step modifies 'epoch_num', which is read-only: the loop counts it\n"
        f"  asked at     {at('read-only')}\n"
        "  count for yourself"
    )


def test_a_modifier_before_that_point_is_no_mistake() -> None:
    class Half(Extension):
        @modifies("loss")
        def post_forward(self, loss: float) -> float:
            return loss / 2

    assert Steps([Half()]).check() == []


def test_a_class_without_such_points_refuses_no_modifier() -> None:
    class Half(Extension):
        @modifies("loss", "epoch_num")
        def post_step(self, loss: float) -> tuple[float, int]:
            return loss / 2, 1

    assert Loop([Half()]).check() == []
