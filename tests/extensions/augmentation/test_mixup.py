from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.host_reads import HostReads
from train_manager import Extension, InputError
from train_manager.extensions import Mixup
from train_manager.testing import tiny_manager

INPUTS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.2, 0.9]])
TARGETS = torch.tensor([0, 1, 1, 0])


class Seen(Extension):
    """Record the inputs and targets of the model, in training and evaluation."""

    def __init__(self) -> None:
        self.training: list[tuple[Tensor, Tensor]] = []
        self.evaluation: list[tuple[Tensor, Tensor]] = []

    def post_train_step_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.training.append((inputs, targets))

    def post_eval_step_batch(self, inputs: Tensor, targets: Tensor) -> None:
        self.evaluation.append((inputs, targets))


def test_inputs_and_targets_are_blended_in_the_same_proportion() -> None:
    inputs, targets = Mixup(num_classes=4).pre_train_model_forward(inputs=INPUTS, targets=torch.arange(4))
    torch.testing.assert_close(inputs, targets @ INPUTS)
    assert targets.sum(dim=1).tolist() == pytest.approx([1.0] * 4)
    assert not inputs.equal(INPUTS)


def test_numbers_as_targets_are_blended_as_they_are() -> None:
    values = INPUTS.sum(dim=1)
    inputs, targets = Mixup(seed=1).pre_train_model_forward(inputs=INPUTS, targets=values)
    torch.testing.assert_close(inputs.sum(dim=1), targets)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_in_another_precision_is_trained(dtype: torch.dtype) -> None:
    batches: Any = tiny_manager().train_data
    model = tiny_manager().model.to(dtype)
    data = [(inputs.to(dtype), targets) for inputs, targets in batches]
    tm = tiny_manager(Mixup(num_classes=2), model=model, train_data=data, eval_data=None)
    tm.train()
    assert tm.update_num == 3


def test_a_batch_is_mixed_with_the_given_probability() -> None:
    mixup = Mixup(num_classes=2, probability=0.25)
    mixed = [mixup.pre_train_model_forward(inputs=INPUTS, targets=TARGETS)[0] is not INPUTS for _ in range(1000)]
    assert sum(mixed) == pytest.approx(250, abs=50)


def test_only_training_is_mixed() -> None:
    seen = Seen()
    tm = tiny_manager(Mixup(num_classes=2), seen)
    tm.train()
    batches: Any = tm.train_data
    assert all(inputs.equal(x) for (inputs, _), (x, _) in zip(seen.evaluation, batches[:2], strict=False))
    assert not any(inputs.equal(x) for (inputs, _), (x, _) in zip(seen.training, batches, strict=True))
    assert {targets.shape[1:] for _, targets in seen.training} == {(2,)}


def test_the_given_batches_are_not_changed() -> None:
    tm = tiny_manager(Mixup(num_classes=2))
    batches: Any = tm.train_data
    before = [(inputs.clone(), targets.clone()) for inputs, targets in batches]
    tm.train()
    assert all(x.equal(a) and y.equal(b) for (x, y), (a, b) in zip(batches, before, strict=True))


def test_the_loss_on_unmixed_examples_falls() -> None:
    tm = tiny_manager(Mixup(alpha=0.4, num_classes=2), epochs=30)
    before = tm.eval()["valid"]["loss"]
    tm.train()
    assert tm.eval()["valid"]["loss"] < before - 0.2


def test_the_global_random_state_is_not_changed() -> None:
    before = torch.get_rng_state()
    tiny_manager(Mixup(num_classes=2)).train()
    assert torch.get_rng_state().equal(before)


def test_a_step_reads_nothing_on_the_host() -> None:
    with HostReads() as reads:
        tiny_manager(Mixup(num_classes=2), eval_data=None).train()
    assert reads.count == 0


def test_class_numbers_without_num_classes_are_an_error_that_names_the_hook() -> None:
    with pytest.raises(InputError, match="give the number of classes") as caught:
        tiny_manager(Mixup()).train()
    assert caught.value.__notes__[0].startswith("in hook Mixup.pre_train_model_forward of extension 'mixup'")


@pytest.mark.parametrize("wrong", [1, 2.5, True, "10"])
def test_an_invalid_number_of_classes_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        Mixup(num_classes=wrong)
    assert str(caught.value) == f"num_classes must be a whole number of at least 2, but is {wrong!r}"


def test_an_invalid_alpha_is_refused() -> None:
    with pytest.raises(InputError, match="alpha must be a number above 0, but is 0"):
        Mixup(alpha=0)
