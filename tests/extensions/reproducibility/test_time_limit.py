from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch

from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import TimeLimit
from train_manager.extensions.reproducibility.time_limit import Duration, duration
from train_manager.testing import Recorder, tiny_manager


class Clock:
    """A clock that stands still but for what the training is said to take."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Takes(Extension):
    """Let each training step and each evaluation take some seconds."""

    def __init__(self, clock: Clock, *, step: float = 1.0, eval: float = 0.0) -> None:
        self.clock, self.step, self.eval = clock, step, eval

    def pre_train_step_batch(self) -> None:
        self.clock.seconds += self.step

    def pre_eval_step_epoch(self) -> None:  # of the one set
        self.clock.seconds += self.eval


def limited(limit: Any, *, step: float = 1.0, eval: float = 0.0, margin: Any = 0, **options: Any) -> TrainManager:
    """Return a manager that trains 30 steps, three in an epoch, unless the time is over before."""
    clock = Clock()
    takes, time_limit = Takes(clock, step=step, eval=eval), TimeLimit(limit, margin=margin, clock=clock)
    return tiny_manager(takes, time_limit, **{"epochs": 10, **options})


# ---- when it ends ----------------------------------------------------------------------------------------------------


def test_the_run_ends_as_soon_as_another_step_would_end_too_late() -> None:
    tm = limited(10, step=3)
    tm.train()

    assert (tm.step_num, tm.stop_reason) == (3, "TimeLimit: no step fits into what is left of 0:00:10")


def test_a_margin_is_left_unused() -> None:
    tm = limited("10:00", margin="1:00", step=60, eval_data=None)
    tm.train()

    assert tm.step_num == 8


def test_a_run_that_is_done_before_is_not_stopped() -> None:
    tm = limited(timedelta(seconds=32))
    tm.train()

    assert (tm.step_num, tm.stop_reason) == (30, None)


def test_an_evaluation_takes_of_the_time_but_is_no_long_step() -> None:
    tm = limited(60, eval=50, eval_at="start")
    tm.train()

    assert tm.step_num == 9


@pytest.mark.parametrize(("limit", "steps"), [(19, 2), (24, 3), (25, 4), (36, 5), (37, 6)])
def test_a_step_that_ends_an_epoch_must_fit_with_its_evaluation(limit: float, steps: int) -> None:
    """An epoch has 3 steps of a second, with evaluations of 10 s before and after it."""
    tm = limited(limit, eval=10, eval_at=("start", "epoch"))
    tm.train()

    assert tm.step_num == steps


def test_the_time_of_an_evaluation_is_looked_at_as_it_ends() -> None:
    tm = limited(20, eval=100, eval_at="epoch")
    tm.train()

    assert (tm.step_num, tm.stop_reason) == (3, "TimeLimit: no step fits into what is left of 0:00:20")


def test_where_no_time_is_left_nothing_is_trained() -> None:
    tm = limited(10, eval=10, eval_at="start")
    with tm.run():
        tm.eval()
        tm.train()

    assert tm.step_num == 0


def test_in_a_phase_it_ends_the_whole_run() -> None:
    tm = limited(5)
    with tm.run():
        with tm.phase("first", epochs=10):
            tm.train()
        with pytest.warns(UserWarning, match="this run was stopped"):
            tm.train()

    assert tm.step_num == 4


def test_the_time_counts_from_the_opening_of_each_run() -> None:
    tm = limited(4)
    tm.train()
    tm.train()

    assert tm.step_num == 6


def test_it_ends_a_run_as_any_other_stop_does() -> None:
    tm = limited(2)
    recorder = tm.add_extension(Recorder())
    tm.train()

    assert recorder.hooks[-4:] == ["post_train_step_batch", "post_train_step_epoch", "post_train", "post_run"]


def test_after_a_resume_all_of_the_time_is_there_again() -> None:
    first, second = limited(4), limited(4)
    first.train()
    second["time_limit"].load_state_dict(first["time_limit"].state_dict())
    second.train()

    assert first["time_limit"].state_dict() == {}
    assert second.step_num == 3


def test_in_a_loop_of_your_own_the_reason_to_stop_says_it() -> None:
    tm = limited(4)
    with tm.run():
        while tm.stop_reason is None:
            tm.train_on_batch((torch.rand(4, 2), torch.zeros(4).long()))

    assert tm.step_num == 3


# ---- what it is given ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("days", "hours", "minutes", "seconds"), [(0, 0, 0, 0), (0, 3, 50, 7), (40, 23, 59, 59)])
def test_every_way_to_write_a_time_means_the_same(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    ways: list[Duration] = [
        f"{days}-{hours:02}:{minutes:02}:{seconds:02}",
        f"{days:02}:{hours:02}:{minutes:02}:{seconds:02}",
        f"{days * 24 + hours}:{minutes:02}:{seconds:02}",
        f"{(days * 24 + hours) * 60 + minutes}:{seconds:02}",
        expected.total_seconds(),
        expected,
    ]

    assert [duration(way, "limit") for way in ways] == [expected] * len(ways)


@pytest.mark.parametrize("text", ["90m", "", "3600", "1:2:3:4:5", "-1:00", "1.5:00", "1-12:00", "\u0661:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        TimeLimit(text)

    assert str(caught.value) == (
        f"limit must be a time, but is {text!r}\n"
        '  give "3:50:00", "50:00", days as "1-12:00:00" or "1:12:00:00", seconds, or a timedelta'
    )


@pytest.mark.parametrize("text", ["3:75:00", "3:00:60", "1-24:00:00"])
def test_a_part_that_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        TimeLimit(60, margin=text)

    assert str(caught.value) == (
        f"margin must be a time, but is {text!r}\n"
        "  hours after days are below 24, minutes after hours and seconds below 60"
    )


def test_a_negative_number_of_seconds_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        TimeLimit(timedelta(seconds=-1))

    assert str(caught.value).splitlines()[0] == "limit must be a number of at least 0, but is -1.0"


def test_it_shows_its_limit_as_a_clock_does() -> None:
    assert repr(TimeLimit(13800)) == 'TimeLimit("3:50:00")'
    assert repr(TimeLimit("3:50:00", margin=90)) == 'TimeLimit("3:50:00", margin="0:01:30")'
