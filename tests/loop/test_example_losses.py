from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.training import At, sgd
from train_manager import TrainManager, fixture
from train_manager.loop.example_losses import losses_of_examples, row
from train_manager.loop.losses import WeightedLosses

PREDICTION = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 2, 2, 1, 0])
EACH = F.cross_entropy(PREDICTION, TARGETS, reduction="none")


class Reduces(nn.Module):
    """Has a word about its reduction, which it does not mind."""

    reduction = "mean"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target)


LOSSES: Mapping[str, Any] = {
    "function": F.cross_entropy,
    "partial": partial(F.cross_entropy, reduction="sum"),
    "module": nn.CrossEntropyLoss(),
    "module that does not mind": Reduces(),
    "lambda": lambda output, target: F.cross_entropy(output, target),
}


class Predicts(nn.Module):
    """Returns what it was made with, times a weight."""

    def __init__(self, prediction: Any) -> None:
        super().__init__()
        self.prediction, self.weight = prediction, nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Any:
        if isinstance(self.prediction, Tensor):
            return self.prediction * self.weight
        return {name: head * self.weight for name, head in self.prediction.items()}


def losses_with(
    loss: Any, prediction: Any = PREDICTION, targets: Any = TARGETS, kind: type[TrainManager] = TrainManager
) -> Tensor:
    """Return the losses of the examples in a batch of a training."""
    found: list[Tensor] = []

    def look(train_manager: Any) -> None:
        found.append(losses_of_examples(train_manager._store, 6, is_own=kind is not TrainManager))

    data = [(torch.arange(6.0), targets)]
    kind(
        model=Predicts(prediction),
        loss=loss,
        optimizer=sgd,
        train_data=data,
        extensions=[At("post_train_step_batch", look)],
    ).train()
    return found[0]


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_each_example_has_the_loss_that_it_would_have_alone(loss: Any) -> None:
    torch.testing.assert_close(losses_with(loss), EACH)


def test_a_loss_that_is_called_by_names_gets_its_parts_by_names() -> None:
    def loss(targets: Tensor, prediction: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(prediction, targets, reduction=reduction)

    found = losses_with(loss)
    torch.testing.assert_close(found, EACH)


def test_several_numbers_of_an_example_are_their_mean() -> None:
    found = losses_with(nn.MSELoss(), targets=torch.zeros(6, 3))

    torch.testing.assert_close(found, PREDICTION.square().mean(1))


def test_heads_are_added_up_with_their_weights() -> None:
    loss = WeightedLosses({"class": (F.cross_entropy, 2.0), "size": (lambda head: head.abs().mean(), 0.5)})
    found = losses_with(loss, {"class": PREDICTION, "size": PREDICTION}, {"class": TARGETS})

    torch.testing.assert_close(found, 2 * EACH + 0.5 * PREDICTION.abs().mean(1))


def test_the_loss_keeps_its_reduction_and_its_buffers() -> None:
    class Counting(nn.CrossEntropyLoss):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(output + 0 * torch.rand(()), target)

    loss = Counting()
    torch.manual_seed(0)
    torch.rand(())
    state = torch.get_rng_state()
    torch.manual_seed(0)
    torch.testing.assert_close(losses_with(loss), EACH)

    assert (loss.reduction, loss.calls.item()) == ("mean", 1)  # that of the training
    assert torch.get_rng_state().equal(state)


def test_a_loss_of_ones_own_sees_one_row_and_what_is_computed_of_it() -> None:
    class Own(TrainManager):
        @fixture("train_step_batch")
        def scale(self, inputs: Tensor) -> Tensor:
            return inputs.mean()

        def loss_forward(self, prediction: Tensor, targets: Tensor, scale: Tensor, true_batch_size: int) -> Tensor:
            return F.cross_entropy(prediction, targets) * scale / true_batch_size

    torch.testing.assert_close(losses_with(None, kind=Own), EACH * torch.arange(6.0))


class Named(NamedTuple):
    x: Tensor
    label: str


def test_a_row_has_the_form_of_its_batch() -> None:
    found = row([Named(torch.tensor([1, 2]), "a"), ("b", "c"), {"y": torch.tensor(5)}], 1, count=2)

    assert found[0] == Named(torch.tensor([2]), "a")
    assert found[1] == ("c",)
    assert found[2]["y"].item() == 5
