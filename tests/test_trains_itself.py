"""An object with a training step of its own, in place of a module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.training import At, make_batches
from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import SAM, Accumulate, ClipGradients, Constrain, FreezeModules, MixedPrecision
from train_manager.model.constraints import max_norm
from train_manager.testing import Recorder


class Half:
    """Halves its one number at each step; the loss is what it was."""

    def __init__(self) -> None:
        self.value = torch.tensor(8.0)
        self.batches: list[Any] = []

    def train_step(self, batch: Any) -> Tensor:
        self.batches.append(batch)
        loss, self.value = self.value, self.value / 2
        return loss


class Evaluated(Half):
    def eval_step(self, batch: Any) -> Tensor:
        return self.value


def self_made(model: Any, *extensions: Extension, **options: Any) -> TrainManager:
    return TrainManager(model=model, train_data=make_batches(3, size=2), extensions=list(extensions), **options)


def test_an_object_with_a_training_step_is_trained_by_it() -> None:
    half = Half()
    tm = self_made(half, epochs=2)
    result = tm.train()

    assert (half.value.item(), len(half.batches)) == (8 / 2**6, 6)
    assert (result.epochs, result.steps, tm.samples_seen) == (2, 6, 12)


def test_its_step_has_no_stages_inside() -> None:
    recorder = Recorder()
    self_made(Half(), recorder).train()

    assert recorder.stages == ["run", "load_checkpoint", "train", "train_step_epoch", *["train_step_batch"] * 3]


def test_its_loss_is_a_fixture() -> None:
    losses: list[float] = []
    self_made(Half(), At("post_train_step_batch", lambda loss: losses.append(float(loss)))).train()

    assert losses == [8, 4, 2]


def test_it_is_given_what_hooks_have_made_of_the_batch() -> None:
    half = Half()
    self_made(half, At("pre_train_step_batch", lambda fixtures: fixtures.modify("batch", torch.ones(1)))).train()

    assert all(batch.equal(torch.ones(1)) for batch in half.batches)


def test_its_evaluation_is_the_mean_of_its_losses() -> None:
    tm = self_made(Evaluated(), eval_data=make_batches(2, size=2))

    assert tm.train().metrics == {"eval": {"loss": 1.0}}
    assert tm.eval_on_batch(make_batches(1, size=2)[0]) == {"loss": 1.0}


def test_it_can_be_trained_batch_by_batch() -> None:
    loss = self_made(Half()).train_on_batch(make_batches(1, size=2)[0])

    assert loss is not None
    assert loss.item() == 8


def test_what_cannot_be_evaluated_says_what_to_write() -> None:
    with pytest.raises(InputError) as caught:
        self_made(Half(), eval_data=make_batches(1, size=2)).eval()

    assert str(caught.value).splitlines() == [
        "Half trains itself but cannot be evaluated",
        "  write a method eval_step(self, batch) that returns the loss, or leave eval_data out",
    ]


def test_a_training_step_that_returns_no_loss_is_refused() -> None:
    class Forgetful(Half):
        def train_step(self, batch: Any) -> Any:
            super().train_step(batch)

    with pytest.raises(InputError) as caught:
        self_made(Forgetful()).train()

    assert str(caught.value).splitlines() == [
        "the loss must be a tensor, but is a NoneType",
        "  return the tensor itself",
    ]


@pytest.mark.parametrize(
    ("extension", "idle"),
    [
        (ClipGradients(1.0), "ClipGradients.pre_train_optimizer_step"),
        (SAM(), "SAM.pre_train_optimizer_step"),
        (Accumulate(2), "Accumulate.pre_train_backward, .*Accumulate.pre_train_optimizer_step"),
    ],
    ids=["ClipGradients", "SAM", "Accumulate"],
)
def test_hooks_inside_its_step_are_told_to_be_idle(extension: Extension, idle: str) -> None:
    with pytest.warns(UserWarning, match=rf"^Half trains itself, so these hooks never run: {idle} \(the stages inside"):
        self_made(Half(), extension).train()


@pytest.mark.parametrize(
    "extension", [MixedPrecision(), FreezeModules("0"), Constrain(max_norm, "0")], ids=lambda it: type(it).__name__
)
@pytest.mark.filterwarnings("ignore:Half trains itself")
def test_an_extension_that_works_on_modules_refuses_it(extension: Extension) -> None:
    name = type(extension).__name__
    with pytest.raises(InputError) as caught:
        self_made(Half(), extension).train()

    assert str(caught.value).splitlines()[:2] == [
        f"{name} works on a torch.nn.Module, but the model is a Half, which trains itself",
        f"  leave {name} out, and do its work in train_step(batch)",
    ]
