from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CyclicLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from train_manager import TrainManager
from train_manager.extensions import LRSchedule
from train_manager.rebuilding.recorded import parameters_of
from train_manager.rebuilding.recorded_rows import expression
from train_manager.runs.record.made_objects import made_objects, unrecorded_objects
from train_manager.testing import tiny_manager


def describe_made_objects(tm: TrainManager) -> dict[str, str]:
    """Return what is told of the made objects beside the recorded parameters, as Python would have it."""
    return {path: expression(tree) for path, tree in unrecorded_objects(made_objects(tm), parameters_of(tm)).items()}


def make(parameters: Any, lr: float = 0.1) -> Optimizer:
    return SGD(parameters, lr=lr, momentum=0.9)


@pytest.mark.parametrize("given", [lambda parameters: make(parameters), make, partial(make, lr=0.1)])
def test_what_a_function_has_made_is_told(given: Callable[..., Optimizer]) -> None:
    assert describe_made_objects(tiny_manager(optimizer=given)) == {"optimizer": "SGD(lr=0.1, momentum=0.9)"}


@pytest.mark.parametrize("given", [SGD, AdamW, partial(SGD, lr=0.1), partial(AdamW, betas=(0.5, 0.9))])
def test_a_class_and_a_partial_of_one_are_told_by_the_parameters(given: Callable[..., Optimizer]) -> None:
    assert describe_made_objects(tiny_manager(optimizer=given)) == {}


def test_an_option_in_which_groups_differ_has_a_value_for_each() -> None:
    def by_layer(parameters: list[torch.Tensor]) -> Optimizer:
        groups: list[dict[str, Any]] = [{"params": parameters[:1], "lr": 0.5}, {"params": parameters[1:]}]
        return SGD(groups, lr=0.25, momentum=0.9)

    assert describe_made_objects(tiny_manager(optimizer=by_layer)) == {"optimizer": "SGD(lr=(0.5, 0.25), momentum=0.9)"}


def test_an_optimizer_that_takes_the_place_of_the_recorded_one_is_told() -> None:
    tm = tiny_manager(optimizer=partial(SGD, lr=0.1))
    tm.optimizer = SGD(tm.model.parameters(), lr=0.3)

    assert describe_made_objects(tm) == {"optimizer": "SGD(lr=0.3)"}


def test_of_several_optimizers_each_is_told() -> None:
    layers = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    optimizers = {"a": lambda parameters: SGD(parameters, lr=0.1), "b": SGD}
    tm = TrainManager(
        model=layers,
        optimizer=optimizers,
        lr_schedule={"b": lambda optimizer: StepLR(optimizer, 3)},
        loss=lambda batch, prediction: prediction,
    )

    assert describe_made_objects(tm) == {"optimizer.a": "SGD(lr=0.1)", "lr_schedule.b": "StepLR(step_size=3)"}


def chain(optimizer: Optimizer) -> SequentialLR:
    parts = LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, 5)
    return SequentialLR(optimizer, [*parts], milestones=[2])


@pytest.mark.parametrize(
    ("make_scheduler", "expected"),
    [
        (lambda optimizer: StepLR(optimizer, 3, gamma=0.5), "StepLR(step_size=3, gamma=0.5)"),
        (lambda optimizer: MultiStepLR(optimizer, [3, 5, 5]), "MultiStepLR(milestones=[3, 5, 5])"),
        (lambda optimizer: OneCycleLR(optimizer, 1.0, total_steps=9), "OneCycleLR(max_lr=1.0, total_steps=9)"),
        (lambda optimizer: CyclicLR(optimizer, 0.1, 0.5), "CyclicLR(base_lr=0.1, max_lr=0.5)"),
        (lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.5), "LambdaLR()"),
        (
            chain,
            "SequentialLR(milestones=[2], "
            "schedulers=[LinearLR(start_factor=0.1, total_iters=2), CosineAnnealingLR(T_max=5)])",
        ),
    ],
)
def test_a_scheduler_is_told_with_its_plain_arguments(make_scheduler: Any, expected: str) -> None:
    assert describe_made_objects(tiny_manager(lr_schedule=make_scheduler))["lr_schedule"] == expected


@pytest.mark.parametrize("given", [partial(StepLR, step_size=3), partial(MultiStepLR, milestones=[3, 5])])
def test_a_partial_of_a_scheduler_is_told_by_the_parameters(given: Any) -> None:
    assert "lr_schedule" not in describe_made_objects(tiny_manager(lr_schedule=given))


def test_the_scheduler_of_an_extension_is_told_once_it_is_made() -> None:
    tm = tiny_manager(LRSchedule(lambda optimizer: StepLR(optimizer, 3)), optimizer=SGD)
    assert describe_made_objects(tm) == {}
    tm.train()

    assert describe_made_objects(tm) == {"extensions.lr_schedule.make": "StepLR(step_size=3)"}


def test_the_rate_is_that_with_which_a_schedule_has_begun() -> None:
    tm = tiny_manager(optimizer=lambda p: SGD(p, lr=0.25), lr_schedule=lambda optimizer: StepLR(optimizer, 1))
    tm.train()

    assert describe_made_objects(tm)["optimizer"] == "SGD(lr=0.25)"


def test_an_object_that_is_unknown_is_told_by_its_class() -> None:
    class Schedule:
        def __init__(self, optimizer: Optimizer, shape: object) -> None:
            self.shape = shape

        def step(self) -> None: ...

    tm = tiny_manager(optimizer=SGD, lr_schedule=lambda optimizer: Schedule(optimizer, object()))

    assert [tree["arguments"] for tree in unrecorded_objects(made_objects(tm), parameters_of(tm)).values()] == [{}]
