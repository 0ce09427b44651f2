"""The example ``examples/lbfgs.py``: an optimizer that computes the loss several times in each step."""

from __future__ import annotations

import torch

from examples import lbfgs as example


def test_hooks_run_once_for_each_step() -> None:
    torch.manual_seed(0)
    tm = example.manager()
    steps: list[int] = []
    tm.add_extension(post_train_backward=lambda step_num: steps.append(step_num))
    tm.train()

    assert steps == list(range(example.EPOCHS))
    assert tm.update_num == example.EPOCHS
