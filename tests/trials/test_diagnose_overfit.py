"""What `diagnose` tells of a batch that is not learned, and of the first loss."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam

from tests.trials.diagnosed import Model, X, asked, list_findings, not_looked_at, regression, said, squared
from train_manager import (
    TrainManager,
    add_loss,
    diagnose,
)
from train_manager.testing import tiny_manager

# ---- overfit ---------------------------------------------------------------------------------------------------------


def test_a_learning_rate_of_zero_is_told_without_a_step() -> None:
    assert said("overfit", optimizer=lambda p: SGD(p, 0.0)) == [
        "warning: the learning rate is 0, so nothing is learned"
    ]


@pytest.mark.parametrize("made", [SGD, Adam])
def test_a_learning_rate_that_is_far_too_small_is_named_first(made: Any) -> None:
    found = asked("overfit", optimizer=lambda p: made(p, 1e-10))

    assert [one.level for one in found] == ["warning"]
    assert found[0].cure.startswith("is the learning rate of 1e-10 too small (lr_finder(tm))?")


def test_a_model_of_tokens_that_learns_slowly_is_a_note() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Embedding(500, 16), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 500))

        def forward(self, tokens: Tensor) -> Tensor:
            return self.body(tokens).transpose(1, 2)  # type: ignore[no-any-return]

    tokens = torch.randint(500, (8, 16), generator=torch.Generator().manual_seed(0))
    data = [(tokens, tokens.roll(-1, 1))]
    found = asked("overfit", Tokens(), optimizer=lambda p: Adam(p, 3e-4), train_data=data)

    assert [one.level for one in found] == ["note"]
    assert found[0].what.startswith("one batch was not yet learned: its loss went from 6.")


def test_a_loss_that_does_not_reach_the_model_is_told() -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(2, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = inputs + 0 * self.unused(inputs)
            return outputs

    found = asked("overfit", Apart())

    assert list_findings(found) == [
        "warning: one batch was not learned: its loss went from 0.647 to 0.647 in 200 steps, "
        "with no more than 6 parameters"
    ]
    assert found[0].cure == (
        "is the learning rate of 0.5 too small (lr_finder(tm))? else does the loss reach the model? "
        "look for detach(), no_grad(), argmax, and what the optimizer has"
    )


def test_what_keeps_a_loss_up_is_named() -> None:
    class Penalised(Model):
        def forward(self, inputs: Tensor) -> Tensor:
            add_loss(1 + self.head.weight.square(), "size")
            return super().forward(inputs)

    found = asked("overfit", Penalised(), optimizer=lambda p: SGD(p, 0.5, weight_decay=0.1))

    assert [one.level for one in found] == ["note"]
    assert "in 200 steps, with the added loss 'size' and weight_decay 0.1" in found[0].what


def test_a_loss_that_finds_the_second_of_each_pair_need_not_come_near_zero() -> None:
    def pairs(prediction: Tensor) -> Tensor:
        places = F.normalize(prediction, dim=1)
        return F.cross_entropy(places @ places.roll(1, 0).T, torch.arange(len(places)))

    found = asked("overfit", loss=pairs)

    assert [one.level for one in found] == ["note"]
    assert found[0].what.endswith("with a loss that compares the examples")


def test_a_model_of_one_token_cannot_tell_equal_tokens_with_different_successors() -> None:
    tokens = torch.tensor([0, 1, 0, 2, 0, 1, 0, 3, 2, 1, 3, 0])
    data = [(tokens[:-1], tokens[1:])]

    found = asked("overfit", nn.Embedding(4, 4), optimizer=lambda p: Adam(p, 0.1), train_data=data)

    assert [(one.level, one.what.partition(", with ")[2]) for one in found] == [
        ("note", "equal predictions that have different labels")
    ]


def test_a_loss_whose_least_value_is_not_known_need_not_come_near_zero() -> None:
    found = asked("overfit", **regression(loss=lambda prediction, targets: 1 + squared(prediction, targets)))

    assert [one.level for one in found] == ["note"]


def test_a_model_with_less_parameters_than_the_batch_has_targets_need_not_learn_it_by_heart() -> None:
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    found = asked("overfit", nn.Linear(1, 1), loss=F.mse_loss, train_data=[(x, x + noise)])

    assert [one.level for one in found] == ["note"]
    assert found[0].what.endswith("with no more than 2 parameters")


def test_a_loss_that_becomes_nan_is_an_error() -> None:
    found = diagnose(tiny_manager(**regression(optimizer=lambda p: SGD(p, 1e30))), ["overfit"], quiet=True)

    assert list_findings(found) == ["error: the loss of one batch became inf in step 2"]


def test_a_batch_is_learned_as_the_training_itself_trains_it() -> None:
    class Own(TrainManager):
        def train_batch(self) -> None:
            self.update(-self.forward())

    found = diagnose(Own(**regression()), ["overfit"], quiet=True)

    assert found[0].level == "warning"


# ---- initial loss ----------------------------------------------------------------------------------------------------


def test_a_softmax_before_cross_entropy_is_found() -> None:
    found = asked("initial loss", Model(last=lambda o: o.softmax(1)))

    assert list_findings(found) == [
        "error: cross_entropy is given probabilities, but takes what comes before a softmax @ softmax"
    ]
    assert found[0].cure == "leave the softmax out of the model"


def test_a_first_loss_far_above_that_of_a_model_that_knows_nothing_is_found() -> None:
    assert said("initial loss", Model(last=lambda o: 100 * o)) == [
        "warning: the first loss, cross_entropy 5.03, is 7.26 times that of a model that knows nothing"
    ]


def test_targets_far_from_zero_are_found_also_if_the_squared_error_is_written_out() -> None:
    found = diagnose(tiny_manager(**regression(train_data=[(X, X[:, :1] + 10)])), ["initial loss"], quiet=True)

    assert found[0].cure.startswith("that is 0.0")
    assert found[0].cure.endswith(
        "(the variance of the targets): scale the targets to mean 0 and variance 1, "
        "or let the last bias begin with their mean"
    )


def test_a_loss_without_a_known_first_value_has_nothing_to_compare() -> None:
    found = asked("initial loss", Model(1), loss=nn.L1Loss(), train_data=[(X, X[:, :1])])

    found.require_none()
    assert str(found) == (
        "initial loss  nothing to compare: the loss has no known first value, as cross_entropy, nll_loss,\n"
        "                binary_cross_entropy and mse_loss have"
    )


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_squared_error_of_stretched_targets_is_found_in_a_train_batch() -> None:
    class Own(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
            self.update(nn.functional.mse_loss(model(inputs), targets))

    tm = Own(model=Model(1), optimizer=SGD, train_data=[(X, X[:, 0])])
    found = diagnose(tm, ["initial loss"], quiet=True)

    assert list_findings(found) == [
        "error: mse_loss compares each prediction with the targets of all examples: (16, 1) against (16,) @ the loss"
    ]
    assert found[0].cure == "give both one shape: targets.view_as(prediction)"


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_squared_error_of_other_shapes_is_not_judged() -> None:
    found = asked("initial loss", Model(2), loss=nn.MSELoss(), train_data=[(X, X[:, :1])])

    assert not_looked_at(found) == ["initial loss: not judged: shapes (16, 2) and (16, 1) differ"]


def test_a_check_that_fails_is_told_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["train_manager.trials.diagnose"], "check_initial_loss", lambda calls: calls[1])
    found = diagnose(tiny_manager(eval_data=None), ["initial loss", "input"], quiet=True)

    assert not_looked_at(found) == ["initial loss: it failed with IndexError: list index out of range"]
    assert {one.check for one in found.covered if one.could_look} == {"input"}
