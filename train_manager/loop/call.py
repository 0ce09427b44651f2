"""Call: one training call, where it began and where it will end, as far as that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final


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

    @property
    def end(self) -> int | None:
        """``step_num`` at the end of the call, as far as it is known or expected."""
        return self.expected_end if self.end_step is None else self.end_step


@final
class InterruptedCall(NamedTuple):
    """The training call that a checkpoint was written in, as it is saved, and until the program makes it again."""

    entry: str | None  # the method that was called; None if the checkpoint was written outside of training calls
    number: int  # Call.number
    start_step: int  # step_num as the call began
    evaluated_at: int | None  # the step_num at which the loop had evaluated last
    open: Sequence[str]  # the stages that were open
    stop: Sequence[Any] | None  # arguments of RunState.stop: stop(at="epoch") was called in the epoch that continues
    resting: Sequence[str]  # the submodules of the model that a hook had set to eval mode
    eval_requested: bool  # an evaluation was due, and the checkpoint was written before it
