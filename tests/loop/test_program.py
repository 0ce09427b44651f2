"""The events of a program: its training calls and phases, as they are made again up to the place of a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager.loop.level import Level
from train_manager.loop.program import Program
from train_manager.telling.errors import CheckpointError
from train_manager.testing import tiny_manager


def level() -> Level:
    return tiny_manager()._level


def saved() -> dict[str, Any]:
    """The state of a program that has trained 3 steps, 2 epochs in a phase, and 4 steps."""
    program = Program()
    program.begin_call("train_steps", 3, 0)
    program.enter("head", level())
    program.begin_call("train_epochs", 2, 0)
    program.leave(2, failed=False)
    program.begin_call("train_steps", 4, 9)
    return {"program": program.state_dict(), "phases": []}


def resumed() -> Program:
    return Program().resumed_from(saved(), are_made_again=True)


def test_a_program_with_other_calls_trains_what_they_say() -> None:
    program = resumed()
    program.enter("head", level())
    program.leave(0, failed=False)

    assert program.begin_call("train_steps", 3, 5) == 3
    assert program.has_calls_left
    assert program.begin_call("train_epochs", 4, 1) == 5
    assert [event["kind"] for event in program.state_dict()] == ["phase", "train_steps", "train_epochs"]


def test_a_phase_may_be_opened_without_the_calls_before_it() -> None:
    program = resumed()

    assert program.enter("head", level()).is_done
    assert program.begin_call("train_steps", 3, 0) == 3


def test_another_phase_is_refused_by_both_names() -> None:
    with pytest.raises(CheckpointError, match="opens phase 'tail', but the checkpoint was written after phase 'head'"):
        resumed().enter("tail", level())


def test_a_program_that_loads_a_state_by_itself_makes_further_calls() -> None:
    program = Program().resumed_from(saved(), are_made_again=False)

    assert not program.has_calls_left
    assert program.has_phases_left
    assert program.begin_call("train_steps", 3, 13) == 16
