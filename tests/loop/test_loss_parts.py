"""The fixture ``loss_parts``: the terms of the loss, weighted and with their graphs."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import At, Values
from train_manager import Extension, TrainManager, WeightedLosses, add_loss
from train_manager.loop.losses import Losses, report_loss

X, Y = torch.ones(4, 1), torch.zeros(4, 1)


class Heads(nn.Module):
    """Returns its weight, which is 2, for two heads, and adds the square of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        add_loss(self.weight.square(), "penalty")
        return {"near": self.weight * inputs, "far": self.weight * inputs}


def weighted_losses() -> WeightedLosses:
    return WeightedLosses({"near": (F.mse_loss, 0.5), "far": (F.l1_loss, 10.0)})


def trained(*extensions: Any, kind: type[TrainManager] = TrainManager, loss: Any = None, steps: int = 1) -> Any:
    """Train for some batches: mse is 4, l1 is 2, the penalty is 4."""
    torch.manual_seed(0)
    optimizer = lambda parameters: SGD(parameters, lr=0.01)  # noqa: E731
    loss = loss or weighted_losses()
    tm = kind(model=Heads(), loss=loss, optimizer=optimizer, train_data=[(X, Y)] * steps, extensions=[*extensions])
    tm.train()
    return tm


def trained_detector(*extensions: Any, **options: Any) -> TrainManager:
    optimizer = lambda parameters: SGD(parameters, lr=0.01)  # noqa: E731
    given = {"model": Detector(), "optimizer": optimizer, "train_data": [(X, Y)], "extensions": [*extensions]}
    tm = TrainManager(**{**given, **options})
    tm.train()
    return tm


def test_the_sum_of_a_dict_of_losses_is_trained() -> None:
    loss = Values("post_train_step_batch", "loss")
    tm = trained_detector(loss)

    assert [one.item() for one in loss.seen] == [4.0 + 2.0 + 8.0]
    assert tm.model.weight.item() == pytest.approx(2 - 0.01 * (4 + 1))


@pytest.mark.parametrize("stages", ["closed", "open"])
def test_the_entries_of_a_dict_of_losses_are_its_parts(stages: str) -> None:
    named = Values("post_train_step_batch", "losses")
    trained_detector(named, parts := Parts(), *[At("pre_train_loss_forward", lambda: None)] * (stages == "open"))

    assert [values(one) for one in named.seen] == [{"near": 4.0, "far": 2.0, "error": 8.0}]
    assert parts.values == [{"near": 4.0, "far": 2.0}]  # without what has no gradient


def test_losses_that_the_model_adds_beside_its_dict_are_trained_too() -> None:
    class Penalised(Detector):
        def forward(self, inputs: Tensor) -> Any:
            add_loss(self.weight.square(), "penalty")
            return super().forward(inputs)

    named = Values("post_train_step_batch", "losses", "loss")
    trained_detector(named, model=Penalised())

    assert [(values(losses), loss.item()) for losses, loss in named.seen] == [
        ({"penalty": 4.0, "near": 4.0, "far": 2.0, "error": 8.0}, 18.0)
    ]


def values(parts: dict[str, Tensor]) -> dict[str, float]:
    return {name: part.item() for name, part in parts.items()}


class Detector(nn.Module):
    """Returns a dict of losses in train mode, as torchvision's detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Tensor) -> Any:
        boxes = self.weight * inputs
        if not self.training:
            return [{"boxes": box} for box in boxes]
        return {"near": boxes.square().mean(), "far": boxes.abs().mean(), "error": boxes.detach().sum()}


class Parts(Extension):
    """Keeps the values of the parts at each backward pass, and the gradient of each."""

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []
        self.gradients: dict[str, float] = {}
        self.alive: list[weakref.ref[Tensor]] = []

    def pre_train_backward(self, model: Heads, loss_parts: dict[str, Tensor]) -> None:
        self.values.append(values(loss_parts))
        self.alive += [weakref.ref(part) for part in loss_parts.values()]
        for name, part in loss_parts.items():
            (gradient,) = torch.autograd.grad(part, model.weight, retain_graph=True)
            self.gradients[name] = gradient.item()


def test_the_parts_are_weighted_and_sum_up_to_the_loss() -> None:
    loss = Values("post_train_step_batch", "loss")

    trained(parts := Parts(), loss)

    assert parts.values == [{"penalty": 4.0, "near": 2.0, "far": 20.0}]
    assert [value.item() for value in loss.seen] == [26.0]


def test_the_parts_have_their_graphs() -> None:
    trained(parts := Parts())

    assert parts.gradients == {"penalty": 4.0, "near": 2.0, "far": 10.0}


def test_the_losses_by_name_keep_their_values_without_weight() -> None:
    losses = Values("post_train_step_batch", "losses")

    trained(Parts(), losses)

    assert values(losses.seen[0]) == {"penalty": 4.0, "near": 4.0, "far": 2.0}


def test_a_loss_by_name_has_its_graph_until_the_batch_ends() -> None:
    alive: list[weakref.ref[Any]] = []

    def note(losses: Losses) -> None:
        assert all(term.requires_grad for term in losses.values())
        alive.extend(weakref.ref(term) for term in losses.values())

    trained(At("post_train_step_batch", note), steps=2)

    assert [term() for term in alive] == [None] * 6


def test_a_weight_that_changes_within_a_training_is_the_weight_of_its_batches() -> None:
    loss = weighted_losses()
    change = At("post_train_step_batch", lambda: loss.weights.update(near=0.0))

    trained(parts := Parts(), change, loss=loss, steps=2)

    assert [batch["near"] for batch in parts.values] == [2.0, 0.0]


def test_a_reported_loss_has_the_weight_that_it_is_given() -> None:
    def loss(prediction: dict[str, Tensor], targets: Tensor) -> Tensor:
        near, far = F.mse_loss(prediction["near"], targets), F.l1_loss(prediction["far"], targets)
        report_loss(near, "near")
        report_loss(far, "far", weight=3.0)
        return near + 3.0 * far

    trained(parts := Parts(), loss=loss)

    assert parts.values == [{"penalty": 4.0, "near": 4.0, "far": 6.0}]


def test_a_term_without_a_graph_is_no_part() -> None:
    def loss(prediction: dict[str, Tensor], targets: Tensor) -> Tensor:
        report_loss(torch.tensor(7.0), "constant")
        return F.mse_loss(prediction["near"], targets)

    trained(parts := Parts(), loss=loss)

    assert parts.values == [{"penalty": 4.0}]


def test_a_hook_after_the_step_may_ask_too() -> None:
    sums = Values("post_train_step_batch", "loss_parts")

    trained(sums, steps=2)

    assert [sorted(parts) for parts in sums.seen] == [["far", "near", "penalty"]] * 2


def test_a_training_with_parts_has_the_same_weights() -> None:
    assert torch.equal(trained(Parts(), steps=5).model.weight, trained(steps=5).model.weight)


def test_no_part_outlives_its_batch() -> None:
    trained(parts := Parts(), steps=3)

    assert [part() for part in parts.alive] == [None] * 9


def test_only_the_parts_of_the_last_of_two_forward_passes_count() -> None:
    class Twice(TrainManager):
        def train_batch(self) -> None:
            self.forward()
            self.update(self.forward())

    trained(parts := Parts(), kind=Twice)

    assert parts.values == [{"penalty": 4.0, "near": 2.0, "far": 20.0}]


def test_each_of_two_updates_in_a_batch_has_the_parts_of_its_own_forward_pass() -> None:
    class Twice(TrainManager):
        def train_batch(self) -> None:
            self.update(self.forward())
            self.update(self.forward())

    trained(parts := Parts(), kind=Twice)

    first, second = parts.values
    assert first == {"penalty": 4.0, "near": 2.0, "far": 20.0}
    assert second["far"] == pytest.approx(10 * 1.84)  # the weight is 2 - 0.01 * 16


def test_what_an_own_train_batch_adds_is_a_part() -> None:
    class Adds(TrainManager):
        def train_batch(self) -> None:
            loss = self.forward()
            add_loss(3.0 * self.model.weight, "beside")
            self.update(loss)

    trained(parts := Parts(), kind=Adds)

    assert parts.values == [{"penalty": 4.0, "near": 2.0, "far": 20.0, "beside": 6.0}]


def test_several_terms_of_one_name_are_one_part() -> None:
    with Losses() as losses:
        add_loss(torch.tensor(1.0, requires_grad=True), "balance")
        add_loss(torch.tensor(2.0, requires_grad=True), "balance")

    assert values(losses.parts()) == {"balance": 3.0}
