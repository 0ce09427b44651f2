"""A loss of torch that would compare each prediction with all targets is refused before it trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import InputError, TrainManager
from train_manager.loop.stretched import may_stretch

X = torch.rand(40, 3)
Y = X.sum(1)  # of shape (40,), while nn.Linear(3, 1) returns (batch, 1)


def manager(loss: Any, targets: Tensor = Y, kind: type[TrainManager] = TrainManager) -> TrainManager:
    batches = [(X[:20], targets[:20]), (X[20:], targets[20:])]
    model = nn.Linear(3, 1)
    return kind(model=model, loss=loss, optimizer=torch.optim.SGD, train_data=batches, eval_data=batches[:1])


LOSSES = [
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.poisson_nll_loss,
    F.kl_div,
    F.hinge_embedding_loss,
    lambda input, target: F.gaussian_nll_loss(input, target, torch.ones(20)),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_would_compare_each_prediction_with_all_targets_is_refused(loss: Callable[..., Tensor]) -> None:
    tm = manager(lambda prediction, targets: loss(prediction, target=targets))
    before = [parameter.clone() for parameter in tm.model.parameters()]
    with pytest.raises(InputError, match=r"would compare each prediction with .*: \(20, 1\) against \(20,\)"):
        tm.train_epochs(1)

    assert tm.step_num == 0
    assert all(map(torch.equal, before, tm.model.parameters()))


def test_the_error_names_the_loss_and_the_code_to_write() -> None:
    with pytest.raises(InputError) as caught:
        manager(nn.MSELoss()).train()

    assert str(caught.value) == (
        "mse_loss would compare each prediction with the targets of all examples: (20, 1) against (20,)\n"
        "  give both one shape: loss=lambda prediction, targets: mse_loss(prediction, targets.view_as(prediction))"
    )


def test_the_cure_of_the_error_trains() -> None:
    tm = manager(lambda prediction, targets: F.mse_loss(prediction, targets.view_as(prediction)))
    tm.train()

    assert tm.step_num == 2


def test_an_evaluation_refuses_it_too() -> None:
    with pytest.raises(InputError, match="mse_loss would compare"):
        manager(F.mse_loss).eval()


def test_an_own_loss_forward_refuses_it_too() -> None:
    class Own(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.mse_loss(prediction, targets) + prediction.square().mean()

    with pytest.raises(InputError, match="mse_loss would compare"):
        manager(None, kind=Own).train()


def test_a_later_batch_of_another_shape_is_refused_before_it_trains() -> None:
    tm = manager(F.mse_loss, Y[:, None])
    tm.train_data = [(X[:20], Y[:20, None]), (X[20:], Y[20:])]
    with pytest.raises(InputError, match="mse_loss would compare"):
        tm.train()

    assert tm.step_num == 1


@pytest.mark.parametrize("targets", [torch.rand(20, 1), torch.rand(1), torch.rand(20, 4), torch.rand(1, 20, 1)])
def test_other_shapes_are_left_to_torch(targets: Tensor) -> None:
    """Also a last batch of one example, whose prediction ``squeeze()`` has made a scalar."""
    prediction = torch.rand(()) if targets.shape == (1,) else torch.rand(20, 1)
    tm = TrainManager(model=nn.Identity(), loss=F.mse_loss, eval_data=[(prediction, targets)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using a target size")
        tm.eval()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_not_compared() -> None:
    nested = torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])

    assert not may_stretch(nested, torch.rand(5))
    assert not may_stretch(torch.rand(5), nested)
