"""Call: one training call, where it began and where it will end, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final


@final
@dataclass
class Call:
    """The present or last training call; a run without a training call has a Call without an entry."""

    # Unique in the process. A training call that a checkpoint has interrupted keeps its number as it is made again, so
    # that schedules, which count within one number, continue.
    number: int
    start_step: int  # step_num as the call began
    entry: str | None = None  # the method that was called, such as "train"
    evaluates: bool = False  # the call evaluates when eval_at says so
    step_limit: int | None = None  # the step_num at which train_steps ends; None in other calls, and after its end
    end_epoch: int | None = None  # epoch_num at the end of the call; None in train_steps
    end_step: int | None = None  # step_num at the end of the call; None while that is unknown
    # If end_step is unknown: a guess of it, as if the coming epochs were as long as the last one.
    expected_end: int | None = None
    has_updated: bool = False  # train_batch has called update or backward in it
    # The submodules of the model that were in eval mode as the call has put the model into train mode.
    resting: list[str] = field(default_factory=list)


@final
class InterruptedCall(NamedTuple):
    """The training call that a checkpoint was written in, until the program makes it again."""

    entry: str  # the method that was called
    number: int  # Call.number
    start_step: int  # step_num as the call began
    evaluated_at: int | None  # the step_num at which the loop had evaluated last
    # The arguments of RunState.stop, if stop(at="epoch") was called in the epoch that continues.
    stop: tuple[str, str, str | None, bool] | None
    resting: tuple[str, ...] = ()  # the submodules of the model that a hook had set to eval mode
    eval_requested: bool = False  # an evaluation was due, and the checkpoint was written before it
