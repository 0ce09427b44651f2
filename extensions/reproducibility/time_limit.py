"""An end in time: the run ends before the machine is taken away."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.loop.feed import epoch_length
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

Duration = str | float | timedelta
"""``"3:50:00"``, ``"50:00"``, ``"1-12:00:00"`` (days), a number of seconds, or a timedelta."""

# Days, hours, minutes, seconds; days only before all of the others, because 1-12:00 has two meanings.
TIME: Final = re.compile(r"(?:(?:(\d+)[-:](?=\d+:\d+:))?(\d+):)?(\d+):(\d+)", re.ASCII)
# The cure of several errors.
FORMS: Final = 'give "3:50:00", "50:00", days as "1-12:00:00" or "1:12:00:00", seconds, or a timedelta'


@recorded
class TimeLimit(Extension):
    """End the run before a time limit, with time left for the code after its last step.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(TimeLimit("0:00:00"), epochs=100)
    >>> result = tm.train()
    >>> tm.step_num, tm.stop_reason
    (0, 'TimeLimit: no step fits into what is left of 0:00:00')

    The time counts from the opening of the run. A job of a cluster began before: give the limit of the job less the
    time that the program takes until then, and less a ``margin`` for what follows the last step: the writing of a
    checkpoint, and an evaluation if there was none before. The run ends as soon as another step as long as the last one
    would end too late; with an evaluation as long as the last one, if the step may end an epoch, or ``eval_at`` has
    "end" or a schedule. It is the whole run, also inside a phase; it ends as by ``tm.stop``, so that hooks run and
    ``Checkpoints`` writes a checkpoint. In a loop of your own (``train_on_batch``) look at ``tm.stop_reason``.

    Nothing of it is saved: a run that resumes from a checkpoint has all of the time again.

    *Runs at:* the start of ``run``, ``train`` and ``eval``, the end of ``train_step_batch`` and ``eval``.

    *Asks for:* ``batch_num``.

    *Leaves behind:* the manager's ``stop_reason``.

    Args:
        limit: hours, minutes and seconds as ``"3:50:00"``, minutes and seconds as ``"50:00"``, with days before them as
            ``"1-12:00:00"`` or ``"01:12:00:00"``; a number of seconds, or a ``timedelta``.
        margin: how much of it to leave unused, in the same forms.
        clock: a function that returns the seconds since any fixed moment.

    Raises:
        InputError: the limit or the margin is not a time.
    """

    def __init__(self, limit: Duration, *, margin: Duration = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: timedelta = duration(limit, "limit")
        self.margin: timedelta = duration(margin, "margin")
        self._now = clock
        self._ends = 0.0  # the time by which the last step must have ended
        self._looked = 0.0  # when the last step, or an evaluation after it, ended
        self._step_seconds = self._eval_seconds = 0.0  # durations of the last step and the last evaluation

    def __repr__(self) -> str:
        margin = f', margin="{self.margin}"' if self.margin else ""
        return f'TimeLimit("{self.limit}"{margin})'

    def pre_run(self) -> None:
        self._looked = self._now()
        self._ends = self._looked + (self.limit - self.margin).total_seconds()

    def pre_train(self, train_manager: TrainManager) -> None:
        self._looked = self._now()
        # With 0 seconds, because the length of the first step is not known: it runs unless the time is over already.
        self._look(0.0, train_manager)

    def post_train_step_batch(self, train_manager: TrainManager, batch_num: int) -> None:
        before, self._looked = self._looked, self._now()
        self._step_seconds = self._looked - before
        follows = self._eval_seconds if may_be_followed_by_an_evaluation(train_manager, batch_num) else 0.0
        self._look(self._step_seconds + follows, train_manager)

    def pre_eval(self) -> None:
        self._looked = self._now()  # the beginning, for the duration in post_eval

    def post_eval(self, train_manager: TrainManager, fixtures: Fixtures) -> None:
        began, self._looked = self._looked, self._now()  # else the next step would seem to include the evaluation
        self._eval_seconds = self._looked - began
        if "train" in fixtures.path:  # not in an evaluation that is a run of its own
            self._look(self._step_seconds, train_manager)

    def _look(self, seconds: float, train_manager: TrainManager) -> None:
        if self._looked + seconds >= self._ends:
            reason = f"TimeLimit: no step fits into what is left of {self.limit}"
            train_manager.stop(reason, whole_run=True)


def may_be_followed_by_an_evaluation(train_manager: TrainManager, batch_num: int) -> bool:
    """Return whether an evaluation may come before, or right after, the step that follows this batch."""
    points, length = train_manager.eval_at, epoch_length(train_manager.train_data, train_manager.steps_per_epoch)
    ends_epoch = length is None or batch_num >= length - 1
    return bool(train_manager.eval_data) and (points.end or bool(points.schedules) or (points.epoch and ends_epoch))


def duration(value: Duration, name: str) -> timedelta:
    """Return a time that is given in one of several forms.

    >>> [str(duration(value, "limit")) for value in ("3:50:00", "90:00", "1-12:00:00", "01:12:00:00", 90)]
    ['3:50:00', '1:30:00', '1 day, 12:00:00', '1 day, 12:00:00', '0:01:30']

    Raises:
        InputError: it is something else, or negative.
    """
    if isinstance(value, str):
        return _time_in(value, name)
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return timedelta(seconds=require_number(seconds, name, at_least=0, cure=FORMS))


def _time_in(text: str, name: str) -> timedelta:
    found = TIME.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{name} must be a time, but is {text!r:.60}", name=name, cure=FORMS)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    if (found[1] and hours >= 24) or (found[2] and minutes >= 60) or seconds >= 60:
        cure = "hours after days are below 24, minutes after hours and seconds below 60"
        raise InputError(f"{name} must be a time, but is {text!r:.60}", name=name, cure=cure)
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
