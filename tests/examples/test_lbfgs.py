"""The example ``examples/lbfgs.py``: an optimizer that computes the loss several times in each step."""

from __future__ import annotations

import pytest
import torch

from examples import lbfgs as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("lbfgs") <= lines_of_twin("lbfgs")


def test_the_program_says_how_large_the_error_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].endswith("after 1 steps")


def test_hooks_run_once_for_each_step() -> None:
    torch.manual_seed(0)
    tm = example.manager()
    steps: list[int] = []
    tm.add_extension(post_train_backward=lambda step_num: steps.append(step_num))
    tm.train()

    assert steps == list(range(example.EPOCHS))
    assert tm.update_num == example.EPOCHS
