"""What the arguments of a TrainManager must be: the text of each refusal, and what passes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from tests.support.training import At, refusal
from train_manager import Endless, InMemory, InputError, TrainManager
from train_manager.errors import HookError
from train_manager.loop.arguments import (
    FIXTURES_OF_A_BATCH,
    bind_loss,
    require_device,
    require_eval_data,
    require_finite_epochs,
    require_loss,
    require_model,
    require_train_data,
)
from train_manager.loop.optimizers import require_optimizer
from train_manager.loop.schedulers import require_lr_schedule
from train_manager.model.optimizers import fused_argument
from train_manager.testing import tiny_manager


def sgd() -> Optimizer:
    return SGD(nn.Linear(1, 1).parameters(), lr=0.1)


# ---- the model -----------------------------------------------------------------------------------------------------


def test_a_function_as_model_is_refused() -> None:
    text = refusal(lambda: require_model(torch.relu, None))  # type: ignore[arg-type]

    assert text == "the model must be a torch.nn.Module, but is a builtin_function_or_method\n  give an nn.Module"


def test_a_model_goes_to_its_device() -> None:
    model = require_model(nn.Linear(1, 1), torch.device("meta"))

    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_a_word_as_loss_is_refused() -> None:
    text = refusal(lambda: require_loss("mse", None))  # type: ignore[arg-type]

    assert text == (
        "the loss must be a function or a module, but is a str\n"
        "  give a function or an instance: loss=nn.CrossEntropyLoss()"
    )


def test_a_loss_with_weights_of_its_own_goes_to_the_device() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.ones(2))
    require_loss(loss, torch.device("meta"))

    assert loss.weight is not None
    assert loss.weight.device.type == "meta"


def test_a_loss_whose_prediction_has_a_default_takes_prediction_and_targets() -> None:
    def loss(a: Tensor, b: Tensor, prediction: None = None) -> Tensor:
        return a

    assert bind_loss(loss) is None


def test_a_loss_by_names_with_a_nameless_parameter_is_refused() -> None:
    def loss(prediction: Tensor, *rest: Tensor) -> Tensor:
        return prediction

    with pytest.raises(HookError, match=r"has the parameter `\*rest`, but fixtures are given by name"):
        bind_loss(loss)


@pytest.mark.parametrize("loss", [lambda output, inputs: output, lambda output, inputs, weight=1: output])
def test_a_loss_that_would_take_the_targets_for_another_fixture_is_refused(loss: Any) -> None:
    loss.__qualname__ = "reconstruction"

    assert refusal(lambda: bind_loss(loss)).replace(", weight", "") == (
        "loss reconstruction(output, inputs) would be given the targets as 'inputs', which is a fixture\n"
        "  call its parameter for the prediction `prediction`: then all of them are fixtures, found by name"
    )


@pytest.mark.parametrize("name", ["targets", "batch"])
def test_a_loss_that_would_take_the_prediction_for_another_fixture_is_refused(name: str) -> None:
    functions: dict[str, Any] = {
        "targets": lambda self, targets, output: output,
        "batch": lambda self, batch, output: output,
    }

    class Swapped(nn.Module):
        forward = functions[name]

    assert refusal(lambda: bind_loss(Swapped())).startswith(
        f"loss Swapped({name}, output) would be given the prediction as {name!r}, which is a fixture\n"
    )


@pytest.mark.parametrize(
    ("loss", "parameters"),
    [
        (lambda output: output, "output"),
        (lambda output, target, weight: output, "output, target, weight"),
        (lambda output, *, target: output, "output, target"),
    ],
)
def test_a_loss_that_cannot_be_called_with_prediction_and_targets_is_refused(loss: Any, parameters: str) -> None:
    loss.__qualname__ = "own"

    assert refusal(lambda: bind_loss(loss)) == (
        f"loss own({parameters}) cannot be called as loss(prediction, targets)\n"
        "  call its parameter for the prediction `prediction`: then all of them are fixtures, found by name"
    )


@pytest.mark.parametrize(
    "loss", [lambda inputs, targets: inputs, lambda output, labels: output, lambda output, targets, batch=None: output]
)
def test_a_loss_whose_own_names_are_in_pytorchs_order_takes_prediction_and_targets(loss: Any) -> None:
    assert bind_loss(loss) is None


def test_all_fixtures_that_are_alive_in_the_loss_stage_are_known_when_the_loss_is_given(tmp_path: Path) -> None:
    alive: set[str] = set()
    tm = tiny_manager(At("pre_train_loss_forward", lambda fixtures: alive.update(fixtures)), train_dir=tmp_path)
    tm.train_steps(1)

    assert alive - FIXTURES_OF_A_BATCH <= {
        "phase_name",
        "standalone_eval",
        "batches_done",
        "batch_losses",
        "data_seconds",
    }


# ---- the optimizer -------------------------------------------------------------------------------------------------


def test_a_callable_can_walk_the_parameters_twice() -> None:
    """An optimizer that decays matrices but not biases needs two passes."""

    def two_groups(parameters: Iterable[nn.Parameter]) -> Optimizer:
        groups = [[p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]]
        return SGD([{"params": group} for group in groups], lr=0.1)

    optimizer = require_optimizer(two_groups, nn.Linear(1, 1), None)
    assert isinstance(optimizer, Optimizer)

    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]


def test_an_optimizer_of_the_losss_parameters_passes() -> None:
    class Temperature(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    loss = Temperature()
    optimizer = SGD(loss.parameters(), lr=0.1)

    assert require_optimizer(optimizer, nn.Linear(1, 1), loss) is optimizer


def test_an_optimizer_without_parameters_is_refused() -> None:
    assert refusal(lambda: require_optimizer(AdamW, nn.Identity(), None)) == (
        "Identity has no parameters for an optimizer\n"
        "  leave the optimizer out, or give one that has the parameters to train"
    )


def test_a_word_as_optimizer_is_refused() -> None:
    text = refusal(lambda: require_optimizer("adam", nn.Linear(1, 1), None))  # type: ignore[arg-type]

    assert text == (
        "the optimizer must be a torch optimizer or a callable that makes one, but is a str\n"
        "  give the class: optimizer=torch.optim.AdamW"
    )


def test_a_callable_that_makes_no_optimizer_is_refused() -> None:
    text = refusal(lambda: require_optimizer(lambda parameters: None, nn.Linear(1, 1), None))  # type: ignore[arg-type]

    assert text == (
        "optimizer must make a torch optimizer, but made a NoneType\n"
        "  optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
    )


# ---- fused optimizers ----------------------------------------------------------------------------------------------


class FakeParameter:
    """A parameter as far as `fused_argument` reads it."""

    def __init__(self, device: str, dtype: torch.dtype = torch.float32) -> None:
        self.device = torch.device(device)
        self.is_floating_point = lambda: dtype.is_floating_point


def parameters_on(*devices: str) -> Any:
    return [FakeParameter(device) for device in devices]


class OwnSGD(SGD):
    """An optimizer class that is not from torch."""


@pytest.mark.parametrize("optimizer", [SGD, AdamW])
def test_a_torch_class_is_fused_if_all_parameters_are_on_a_gpu(optimizer: Any) -> None:
    assert fused_argument(optimizer, parameters_on("cuda", "cuda:0")) == {"fused": True}


@pytest.mark.parametrize("devices", [(), ("cpu",), ("cuda", "cpu"), ("meta",)])
def test_nothing_is_fused_elsewhere(devices: tuple[str, ...]) -> None:
    assert fused_argument(SGD, parameters_on(*devices)) == {}


@pytest.mark.parametrize(
    "optimizer", [OwnSGD, lambda parameters: SGD(parameters, lr=0.1), functools.partial(SGD, lr=0.1), LBFGS]
)
def test_only_a_torch_class_that_can_be_fused_is_fused(optimizer: Any) -> None:
    assert fused_argument(optimizer, parameters_on("cuda")) == {}


def test_parameters_that_are_not_floating_point_numbers_are_not_fused() -> None:
    assert fused_argument(SGD, [FakeParameter("cuda", torch.int64)]) == {}  # type: ignore[list-item]


def test_an_optimizer_on_the_cpu_is_not_fused() -> None:
    made = require_optimizer(AdamW, nn.Linear(1, 1), None)

    assert isinstance(made, Optimizer)
    assert not made.defaults["fused"]


# ---- the lr_schedule -----------------------------------------------------------------------------------------------


def test_a_scheduler_that_was_made_already_is_refused() -> None:
    optimizer = sgd()
    text = refusal(lambda: require_lr_schedule(StepLR(optimizer, 1), optimizer))

    assert text == (
        "lr_schedule needs a function of the optimizer, but was given a StepLR\n"
        "  lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, ...)"
    )


def test_a_callable_that_makes_no_scheduler_is_refused() -> None:
    text = refusal(lambda: require_lr_schedule(lambda optimizer: None, sgd()))

    assert text == (
        "lr_schedule must make a scheduler with step(), but made a NoneType\n"
        "  lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)"
    )


# ---- data and the folder -------------------------------------------------------------------------------------------


def test_an_invalid_evaluation_set_is_named() -> None:
    text = refusal(lambda: require_eval_data({"valid": [1], "test": torch.zeros(1)}))

    assert text.startswith("eval_data['test'] must be an iterable of batches, but is a tensor\n")


def test_epochs_of_data_without_an_end_are_refused() -> None:
    text = refusal(lambda: require_finite_epochs(Endless([1]), None))

    assert text == (
        "train_data (Endless) has no end, so no epoch of it would end either\n"
        "  pass steps_per_epoch=1000, or train by steps: tm.train_steps(1000)"
    )


def test_a_device_of_another_name_is_refused() -> None:
    assert refusal(lambda: require_device("gpu")) == (
        "device must be one of torch's, but is 'gpu'\n"
        '  write "cuda" for a GPU of NVIDIA or AMD, "mps" for one of Apple, or "cpu"'
    )


def test_a_device_that_is_not_there_is_refused() -> None:
    first, cure = refusal(lambda: require_device("cuda:99")).splitlines()

    assert first.startswith("there is no device 'cuda:99' here: ")
    assert cure == '  device="cpu"; or "cuda" if torch.cuda.is_available() else "cpu"'


def test_a_device_that_is_there_is_returned() -> None:
    assert (require_device(None), require_device("cpu")) == (None, torch.device("cpu"))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ((torch.ones(4, 2), torch.ones(4)), "a tuple of 2 tensors, which would be a batch each"),
        ([torch.ones(4, 2), torch.ones(4).long()], "a list of 2 tensors, which would be a batch each"),
        ((np.ones((4, 2)), np.ones(4)), "a tuple of 2 arrays, which would be a batch each"),
        ([DataLoader(TensorDataset(torch.ones(2)))] * 2, "a list with a DataLoader, which would be a batch"),
        ([InMemory(torch.ones(4), batch_size=2)], "a list with a InMemory, which would be a batch"),
        ("digits", "a path or a text, 'digits'"),
        (Path("digits"), "a path or a text, "),
        (DataLoader, "the class DataLoader"),
        (lambda: [], "the function <lambda>"),
        (3, "of type int"),
    ],
)
def test_what_is_no_iterable_of_batches_is_refused(data: Any, kind: str) -> None:
    assert refusal(lambda: require_train_data(data)).startswith(
        f"train_data must be an iterable of batches, but is {kind}"
    )


@pytest.mark.parametrize(
    "data",
    [
        [],
        [torch.ones(4, 2), torch.ones(4, 3)],
        [torch.ones(4, 2), torch.ones(3, 2)],
        torch.ones(8, 2).split(4),
        [(torch.ones(4, 2), torch.ones(4))],
        ["a text", "another"],
    ],
    ids=["empty", "sequences", "batches", "split", "pairs", "texts"],
)
def test_what_may_be_batches_is_taken(data: Any) -> None:
    assert require_train_data(data) is data


def test_single_examples_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(eval_data={"valid": [(torch.ones(2), torch.tensor(1))] * 4})

    assert str(caught.value) == (
        "eval_data['valid'] must be an iterable of batches, but is a list of single examples: "
        "its targets are one number\n"
        "  cut it into batches: Rows(data, batch_size=64), or DataLoader(data, batch_size=64)"
    )


def test_an_own_unpack_batch_may_read_single_examples() -> None:
    class Own(TrainManager):
        def unpack_batch(self, batch: Any) -> Any:
            inputs, target = batch
            return inputs.unsqueeze(0), target.unsqueeze(0)

    data = [(torch.ones(2), torch.tensor(1))] * 4

    assert Own(model=nn.Linear(2, 2), loss=nn.functional.cross_entropy, train_data=data).train_data is data
