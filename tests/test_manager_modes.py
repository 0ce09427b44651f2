"""The modes of the model: those of training and of evaluation, restored on any exit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.training import At, modes
from train_manager import Extension, TrainManager
from train_manager.testing import tiny_manager


def frozen_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())


def test_training_is_in_train_mode_with_gradients_and_evaluation_in_eval_mode_without() -> None:
    class Modes(Extension):
        seen: set[tuple[str, bool, bool]] = set()

        def pre_stage(self, stage: Any, train_manager: TrainManager) -> None:
            self.seen.add((stage.name, train_manager.model.training, torch.is_grad_enabled()))

    with torch.no_grad():
        tiny_manager(Modes()).train()

    assert {mode[1:] for mode in Modes.seen if mode[0].startswith("train")} == {(True, True)}
    assert {mode[1:] for mode in Modes.seen if mode[0].startswith("eval")} == {(False, False)}


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("hook", ["pre_train_backward", "post_eval_step_batch", "pre_run", "post_train"])
def test_modes_are_restored_per_submodule_on_any_exit(error: type[BaseException] | None, hook: str) -> None:
    def leave() -> None:
        if error:
            raise error

    tm = tiny_manager(At(hook, leave), model=frozen_model())
    if error:
        with pytest.raises(error):
            tm.train()
    else:
        tm.train()

    assert modes(tm.model) == [True, True, False]
    assert torch.is_grad_enabled()


def test_no_grad_around_training_is_restored() -> None:
    with torch.no_grad():
        tiny_manager().train()
        assert not torch.is_grad_enabled()


def test_a_frozen_batch_norm_is_in_train_mode_while_training() -> None:
    """Training calls ``model.train()``, as bare loops do: freeze in a hook, or override the model's ``train``."""
    during: list[bool] = []
    tm = tiny_manager(
        At("post_train_model_forward", lambda train_manager: during.append(train_manager.model[1].training)),
        model=frozen_model(),
    )
    tm.train()

    assert during == [True] * 3


def test_a_part_that_a_hook_freezes_stays_frozen_across_evaluations() -> None:
    during: list[bool] = []
    tm = tiny_manager(
        At("pre_train", lambda train_manager: train_manager.model[1].eval()),
        At("post_train_model_forward", lambda train_manager: during.append(train_manager.model[1].training)),
        model=nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        epochs=2,
    )
    tm.train()

    assert during == [False] * 6
    assert modes(tm.model) == [True, True, True]


def test_a_model_in_eval_mode_is_trained_in_train_mode_and_left_in_eval_mode() -> None:
    tm = tiny_manager()
    tm.model.eval()
    tm.train()

    assert not any(modes(tm.model))


def test_a_loss_that_is_a_module_is_in_the_mode_of_the_model() -> None:
    class Loss(nn.Module):
        modes: list[bool] = []

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            self.modes.append(self.training)
            return F.cross_entropy(output, target)

    tm = tiny_manager(loss=Loss().eval())
    tm.train()

    assert Loss.modes == [False] * 2 + [True] * 3 + [False] * 2
    assert modes(tm.loss) == [False]


def test_mode_is_for_a_with_block() -> None:
    tm = tiny_manager()
    with tm.mode(training=False):
        assert not tm.model.training
    assert tm.model.training
