from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.training import make_batches
from train_manager import InputError, TrainManager
from train_manager.loop.losses import Collector, Losses, WeightedLosses, add_loss, report_loss


def test_without_additions_the_loss_is_the_very_same_tensor() -> None:
    loss = torch.tensor(1.0)
    assert Losses().total(loss) is loss


def test_outside_of_a_block_nothing_happens() -> None:
    losses = Losses()
    add_loss(torch.tensor(1.0))
    with losses:
        pass
    add_loss(torch.tensor(1.0))
    report_loss(torch.tensor(1.0), "part")
    assert losses == {}


def test_an_inner_block_collects_for_itself() -> None:
    with Losses() as outer:
        add_loss(torch.tensor(1.0))
        with Losses() as inner:
            add_loss(torch.tensor(2.0))
        add_loss(torch.tensor(4.0))
    assert (outer.total(None).item(), inner.total(None).item()) == (5.0, 2.0)


def test_a_collector_that_was_left_fills_nothing_when_it_is_entered_again() -> None:
    collector = Collector(losses := Losses())
    with collector:
        pass
    with collector:
        add_loss(torch.tensor(1.0))
    assert losses == {}


def test_an_error_ends_the_collecting() -> None:
    losses = Losses()
    with pytest.raises(ValueError, match="on purpose"), losses:
        raise ValueError("on purpose")
    add_loss(torch.tensor(1.0))
    assert losses.added is None


def test_another_thread_does_not_collect() -> None:
    with Losses() as losses:
        thread = threading.Thread(target=add_loss, args=(torch.tensor(1.0),))
        thread.start()
        thread.join()
    assert losses.added is None


@pytest.mark.parametrize(
    ("wrong", "what"), [(1.0, "a float"), (None, "a NoneType"), (torch.tensor(1), "a tensor of torch.int64")]
)
def test_a_value_that_is_not_a_tensor_of_floating_point_numbers_is_refused(wrong: Any, what: str) -> None:
    with pytest.raises(InputError) as caught, Losses():
        add_loss(wrong)
    assert str(caught.value) == (
        f"add_loss's value must be a tensor of floating point numbers, but is {what}\n"
        "  convert it: torch.as_tensor(value).float()"
    )


# ---- several heads -------------------------------------------------------------------------------------------------

PREDICTION = {"digit": torch.tensor([[2.0, 1.0], [0.0, 1.0]]), "slant": torch.tensor([1.0, 3.0])}
TARGETS = {"digit": torch.tensor([0, 1]), "slant": torch.tensor([0.0, 0.0])}


def test_several_losses_are_summed_with_their_weights() -> None:
    loss = WeightedLosses({"digit": F.cross_entropy, "slant": (F.mse_loss, 0.5)})
    expected = F.cross_entropy(PREDICTION["digit"], TARGETS["digit"]) + 0.5 * 5
    assert loss(PREDICTION, TARGETS).equal(expected)


def test_a_weight_may_be_changed() -> None:
    loss = WeightedLosses({"digit": F.cross_entropy, "slant": (F.mse_loss, 0.5)})
    loss.weights["slant"] = 2.0
    expected = F.cross_entropy(PREDICTION["digit"], TARGETS["digit"]) + 2.0 * 5
    assert loss(PREDICTION, TARGETS).equal(expected)


def test_a_head_without_targets_is_called_with_its_prediction() -> None:
    loss = WeightedLosses({"slant": (lambda values: values.abs().mean(), 0.5)})
    assert loss(PREDICTION, {}).item() == 1.0


def test_targets_that_are_not_a_dict_are_those_of_every_head() -> None:
    loss = WeightedLosses({"slant": F.mse_loss, "again": (F.mse_loss, 2.0)})
    values = PREDICTION["slant"]
    assert loss({"slant": values, "again": values}, torch.zeros(2)).item() == 15.0


def test_losses_that_are_modules_are_registered() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return self.scale * F.mse_loss(prediction, targets)

    assert len(list(WeightedLosses({"slant": Scaled()}).parameters())) == 1


@pytest.mark.parametrize("wrong", [{}, F.cross_entropy, [F.cross_entropy]])
def test_losses_that_are_not_a_dict_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r'give a dict: \{"digit": \(F.cross_entropy, 1.0\)\}'):
        WeightedLosses(wrong)


@pytest.mark.parametrize("wrong", ["mse", (F.mse_loss, "1"), (F.mse_loss, True), nn.MSELoss, (1.0, F.mse_loss)])
def test_a_head_without_a_function_and_a_number_is_refused(wrong: Any) -> None:
    with pytest.raises(
        InputError, match=r"the loss of head 'slant' must be a function or a pair, but is .*\n.*a function and a number"
    ):
        WeightedLosses({"slant": wrong})


def test_a_prediction_that_lacks_a_head_is_an_error() -> None:
    with pytest.raises(InputError) as caught:
        WeightedLosses({"size": F.mse_loss})(PREDICTION, TARGETS)
    assert str(caught.value) == (
        "the prediction must have the head 'size', but has 'digit', 'slant'\n"
        "  return a dict from the model's forward, with the names of the losses"
    )


@pytest.mark.parametrize(("prediction", "found"), [(torch.zeros(2, 3), "Tensor"), ((torch.zeros(2),) * 2, "tuple")])
def test_a_prediction_without_heads_is_refused_by_weighted_losses(prediction: Any, found: str) -> None:
    loss = WeightedLosses({"digit": F.cross_entropy, "slant": (F.mse_loss, 0.5)})
    with pytest.raises(InputError) as caught:
        loss(prediction, torch.zeros(2))

    assert str(caught.value) == (
        f"the prediction must be a dict with the heads 'digit' and 'slant', but is a {found}\n"
        "  return a dict from the model's forward: {'digit': ...}"
    )


def test_a_second_forward_pass_of_an_evaluation_replaces_what_the_first_has_added() -> None:
    class Adds(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            add_loss(torch.tensor(100.0))
            return super().forward(inputs)

    class Twice(TrainManager):
        def eval_batch(self) -> None:
            self.forward()
            self.forward()

    torch.manual_seed(0)
    model = Adds(2, 2)
    given: dict[str, Any] = {"model": model, "loss": nn.functional.cross_entropy, "eval_data": make_batches(1)}
    once, twice = (kind(**given, optimizer=torch.optim.SGD).eval()["eval"]["loss"] for kind in (TrainManager, Twice))

    assert once == twice
