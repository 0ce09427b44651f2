"""Call: one training call, where it began and where it will end, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final


@final
@dataclass
class Call:
    """The present or last training call; a run in which no call was made has one without an entry.

    Attributes:
        number: what no other call has; a call that is made again after a checkpoint has its number of before.
        start_step: ``step_num`` as it began.
        entry: the method that was called.
        evaluates: it evaluates when ``eval_at`` says so.
        step_limit: the ``step_num`` at which ``train_steps`` ends; None in others, and once it has ended.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        expected_end: the same, where the length of the coming epochs is guessed from that of the last one.
        has_updated: ``train_batch`` has called ``update`` or ``backward`` in it.
    """

    number: int
    start_step: int
    entry: str | None = None
    evaluates: bool = False
    step_limit: int | None = None
    end_step: int | None = None
    expected_end: int | None = None
    has_updated: bool = False


@final
class InterruptedCall(NamedTuple):
    """The call that a checkpoint was written in, until the program makes it again.

    Attributes:
        entry: the method that was called.
        number: that of the call.
        start_step: ``step_num`` as it began.
        evaluated_at: the ``step_num`` at which the loop had evaluated last.
        stop: what ``stop`` was given in an epoch that goes on; None if it was not called.
        resting: the names of the modules of the model that a hook had set to eval mode.
    """

    entry: str
    number: int
    start_step: int
    evaluated_at: int | None
    stop: tuple[str, str, str | None, bool] | None
    resting: tuple[str, ...] = ()
