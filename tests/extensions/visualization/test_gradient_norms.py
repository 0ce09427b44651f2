"""Norms of gradients: which gradients they are of, and when."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.extensions.visualization.test_watchers import two_optimizers
from train_manager import Extension
from train_manager.extensions import (
    Accumulate,
    ClipGradients,
    FreezeModules,
    GradientNorms,
    MixedPrecision,
    UpdateRatios,
)
from train_manager.testing import tiny_manager


def batches() -> list[tuple[Tensor, Tensor]]:
    inputs = torch.rand(64, 2, generator=torch.Generator().manual_seed(0))
    return list(zip(inputs.split(16), (inputs.sum(dim=1) > 1).long().split(16), strict=True))


def norms_after(*extensions: Extension, **options: Any) -> list[list[float]]:
    norms = GradientNorms()
    tiny_manager(norms, *extensions, **{"train_data": batches(), **options}).train()
    return [row.mean.tolist() for row in norms.series["gradient_norms"].rows]


def norms_by_hand(inputs: Tensor, targets: Tensor) -> list[float]:
    model = tiny_manager().model
    F.cross_entropy(model(inputs), targets).backward()
    gradients = [[each.grad for each in layer.parameters()] for layer in (model[0], model[2])]
    return [math.hypot(*(float(each.norm()) for each in of_layer)) for of_layer in gradients]


def test_they_are_those_of_the_batch() -> None:
    assert norms_after()[0] == pytest.approx(norms_by_hand(*batches()[0]), rel=1e-5)


def test_they_are_those_before_clipping() -> None:
    assert norms_after(ClipGradients(max_norm=1e-3, value=1e-4))[0] == norms_after()[0]


def test_they_are_those_of_all_accumulated_batches() -> None:
    (inputs, more_inputs), (targets, more_targets) = zip(*batches()[:2], strict=True)
    both = torch.cat([inputs, more_inputs]), torch.cat([targets, more_targets])
    found = norms_after(Accumulate(2))

    assert len(found) == 2
    assert found[0] == pytest.approx(norms_by_hand(*both), rel=1e-5)


def test_they_are_not_scaled_with_the_loss() -> None:
    assert norms_after(MixedPrecision(torch.float16))[-1] == pytest.approx(norms_after()[-1], rel=0.1)


def test_a_step_that_is_skipped_has_none() -> None:
    norms = GradientNorms()
    ratios, many = UpdateRatios(every=1), batches() * 8
    tm = tiny_manager(norms, ratios, MixedPrecision(torch.float16), train_data=many, loss=steep)
    result = tm.train()

    assert 0 < result.updates < len(many)
    assert len(norms.series["gradient_norms"].rows) == result.updates
    assert len(ratios.series["update_ratios"].rows) == result.updates


def steep(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction, targets) * 20  # whose gradients overflow until the scale is smaller


def test_a_layer_without_gradients_is_nan() -> None:
    assert repr(norms_after(FreezeModules("0"))[0][0]) == "nan"


def test_each_of_several_optimizers_has_its_own_layers() -> None:
    norms = GradientNorms()
    two_optimizers(norms).train()

    assert {name: columns.labels for name, columns in norms.series.items()} == {
        "gradient_norms/first": ["0 Linear"],
        "gradient_norms/last": ["1 BatchNorm1d", "4 Linear"],
    }


@pytest.mark.filterwarnings("ignore:2 parameters have a gradient and are in no optimizer")
def test_parameters_that_are_added_begin_another_series() -> None:
    class Adds(Extension):
        def post_train_step_batch(self, step_num: int, train_manager: Any) -> None:
            if step_num == 2:
                train_manager.optimizer.add_param_group({"params": [*train_manager.model[2].parameters()]})

    norms, model = GradientNorms(), tiny_manager().model
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    tiny_manager(norms, Adds(), model=model, optimizer=optimizer).train()

    assert {name: (columns.labels, len(columns.rows)) for name, columns in norms.series.items()} == {
        "gradient_norms": (["0 Linear"], 2),
        "gradient_norms (2)": (["0 Linear", "2 Linear"], 1),
    }


@pytest.mark.filterwarnings("ignore:the loss .Learned. has 1 parameters")
def test_weights_of_a_loss_are_a_layer_too() -> None:
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.5))

        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction * self.scale, targets)

    norms = GradientNorms()
    tiny_manager(norms, loss=Learned(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)).train()

    assert norms.series["gradient_norms"].labels == ["0 Linear", "2 Linear", "outside of the model"]
