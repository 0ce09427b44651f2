"""The modes of the model: those of training and of evaluation, restored on any exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.training import At, make_batches, modes
from train_manager import Extension, Objective, TrainManager, WeightedLosses
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


# ---- a loss with modules -----------------------------------------------------------------------------------------


class Distillation(nn.Module):
    """A loss with a frozen teacher, which notes its modes: its own, and those of the teacher and its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Dropout()).eval()
        self.seen: list[list[bool]] = []

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        self.seen.append(modes(self))
        return F.cross_entropy(prediction, targets) + F.mse_loss(prediction, self.teacher(prediction.detach()))

    def compute(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return self(prediction, targets)  # type: ignore[no-any-return]


class Distill(Objective):
    def __init__(self, distillation: Distillation) -> None:
        super().__init__()
        self.distillation = distillation

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return self.distillation(prediction, targets)  # type: ignore[no-any-return]


AS_USER_SET = [True, False, False, False]

FORMS: dict[str, Callable[[Distillation], Any]] = {
    "module": lambda loss: loss,
    "bound method": lambda loss: loss.compute,
    "objective": Distill,
}


def moved(teacher: nn.Module) -> int:
    """Return how many batches the statistics of a teacher were moved by."""
    return int(teacher.get_buffer("0.num_batches_tracked"))


@pytest.mark.parametrize("form", FORMS)
def test_a_frozen_teacher_in_a_loss_keeps_its_statistics(form: str) -> None:
    loss = Distillation()
    tm = tiny_manager(loss=FORMS[form](loss))
    tm.train()
    tm.train_on_batch(make_batches(1)[0])
    tm.predict(torch.rand(3, 2))

    assert moved(loss.teacher) == 0


@pytest.mark.parametrize("form", FORMS)
def test_training_leaves_the_modes_of_a_loss_as_they_are_and_evaluation_is_in_eval_mode(form: str) -> None:
    loss = Distillation()
    tm = tiny_manager(loss=FORMS[form](loss))
    tm.train()

    assert loss.seen == [[False] * 4] * 2 + [AS_USER_SET] * 3 + [[False] * 4] * 2
    assert modes(loss) == AS_USER_SET


@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_its_own_leaves_the_modes_of_a_loss_as_they_are(form: str) -> None:
    loss = Distillation().eval()
    tm = tiny_manager(loss=FORMS[form](loss))
    tm.train_on_batch(make_batches(1)[0])

    assert loss.seen == [[False] * 4]


@pytest.mark.parametrize("form", FORMS)
def test_an_error_in_an_evaluation_restores_each_mode_of_a_loss(form: str) -> None:
    def fail() -> None:
        raise ValueError("of a hook")

    loss = Distillation()
    tm = tiny_manager(At("post_eval_loss_forward", fail), loss=FORMS[form](loss))
    with pytest.raises(ValueError, match="of a hook"):
        tm.eval()

    assert (loss.seen, modes(loss)) == ([[False] * 4], AS_USER_SET)


def test_the_loss_of_a_phase_is_in_the_modes_that_the_user_set() -> None:
    loss = Distillation()
    tm = tiny_manager(eval_data={})
    with tm.phase("distil", loss=loss, epochs=1):
        tm.train()

    assert (loss.seen, modes(loss), moved(loss.teacher)) == ([AS_USER_SET] * 3, AS_USER_SET, 0)


def test_a_teacher_in_weighted_losses_keeps_its_modes() -> None:
    loss = Distillation()

    class Head(nn.Linear):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"head": super().forward(inputs)}

    tm = tiny_manager(model=Head(2, 2), loss=WeightedLosses({"head": loss}), eval_at=("end",))
    tm.train()

    assert loss.seen == [AS_USER_SET] * 3 + [[False] * 4] * 2
    assert (modes(loss), moved(loss.teacher)) == (AS_USER_SET, 0)


def test_modes_that_a_hook_gives_to_a_loss_stay_after_the_run() -> None:
    loss = Distillation()
    tm = tiny_manager(At("pre_train", lambda: loss.eval()), loss=loss)
    tm.train()

    assert modes(loss) == [False] * 4


def test_a_loss_that_is_a_method_of_the_model_is_trained_in_the_models_mode() -> None:
    class Own(nn.Linear):
        seen: list[bool] = []

        def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
            self.seen.append(self.training)
            return F.cross_entropy(prediction, targets)

    model = Own(2, 2)
    model.eval()
    tiny_manager(model=model, loss=model.loss, eval_data={}).train()

    assert Own.seen == [True] * 3


def test_mode_is_for_a_with_block() -> None:
    tm = tiny_manager()
    with tm.mode(training=False):
        assert not tm.model.training
    assert tm.model.training
