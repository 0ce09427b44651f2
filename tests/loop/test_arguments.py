"""What a TrainManager requires: the text of each refusal, and what passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from train_manager import Endless, HookError, InputError
from train_manager.loop.arguments import (
    loss_by_name,
    require_end_of_epochs,
    require_eval_data,
    require_folder,
    require_loss,
    require_lr_schedule,
    require_model,
    require_optimizer,
    require_ready_to_train,
    require_train_dir,
)
from train_manager.loop.outputs import (
    no_targets,
    require_batch_size,
    require_parts,
    require_prediction,
    require_scalar_loss,
    require_tensor,
    require_training_loss,
    rows_of,
)
from train_manager.model.optimizers import fused_argument


def refusal(call: Callable[[], object]) -> str:
    """The text of the InputError that the call raises."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def sgd() -> Optimizer:
    return SGD(nn.Linear(1, 1).parameters(), lr=0.1)


# ---- data without an end -----------------------------------------------------------------------------------------


def test_epochs_of_data_without_an_end_are_refused() -> None:
    text = refusal(lambda: require_end_of_epochs(Endless([1]), None))

    assert text == (
        "train_data (Endless) has no end, so no epoch of it would end either\n"
        "  pass steps_per_epoch=1000, or train by steps: tm.train_steps(1000)"
    )


def test_epochs_of_so_many_steps_end() -> None:
    require_end_of_epochs(Endless([1]), 3)


def test_epochs_of_data_that_ends_end() -> None:
    require_end_of_epochs([1], None)


# ---- the model -------------------------------------------------------------------------------------------------


def test_a_model_class_is_refused() -> None:
    text = refusal(lambda: require_model(nn.Linear, None))  # type: ignore[arg-type]

    assert text == "model is a type, not a torch.nn.Module\n  give an instance: model=Net()"


def test_a_function_as_model_is_refused() -> None:
    text = refusal(lambda: require_model(torch.relu, None))  # type: ignore[arg-type]

    assert text == "model is a builtin_function_or_method, not a torch.nn.Module\n  wrap it in an nn.Module"


def test_a_model_goes_to_its_device() -> None:
    model = require_model(nn.Linear(1, 1), torch.device("meta"))

    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


# ---- the optimizer ---------------------------------------------------------------------------------------------


def test_an_optimizer_is_taken_as_it_is() -> None:
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters(), lr=0.1)

    assert require_optimizer(optimizer, model, None) is optimizer


def test_a_callable_makes_the_optimizer() -> None:
    assert isinstance(require_optimizer(AdamW, nn.Linear(1, 1), None), AdamW)


def test_a_callable_can_walk_the_parameters_twice() -> None:
    """As one that decays matrices and not biases does."""

    def two_groups(parameters: Iterable[nn.Parameter]) -> Optimizer:
        groups = [[p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]]
        return SGD([{"params": group} for group in groups], lr=0.1)

    optimizer = require_optimizer(two_groups, nn.Linear(1, 1), None)
    assert optimizer is not None

    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]


def test_an_optimizer_of_another_models_parameters_is_refused() -> None:
    text = refusal(lambda: require_optimizer(sgd(), nn.Linear(1, 1), None))

    assert text == (
        "the optimizer (SGD) holds no parameter of the model, so nothing would be trained\n"
        "  make it of this model's parameters, or give the class: optimizer=torch.optim.AdamW"
    )


def test_an_optimizer_of_the_losss_parameters_passes() -> None:
    class Temperature(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    loss = Temperature()
    optimizer = SGD(loss.parameters(), lr=0.1)

    assert require_optimizer(optimizer, nn.Linear(1, 1), loss) is optimizer


def test_a_word_as_optimizer_is_refused() -> None:
    text = refusal(lambda: require_optimizer("adam", nn.Linear(1, 1), None))  # type: ignore[arg-type]

    assert text == ("optimizer is a str\n  give a torch optimizer, or a callable that makes one of the parameters")


def test_a_callable_that_makes_no_optimizer_is_refused() -> None:
    text = refusal(lambda: require_optimizer(lambda parameters: None, nn.Linear(1, 1), None))  # type: ignore[arg-type, return-value]

    assert text == (
        "optimizer made a NoneType, not a torch optimizer\n"
        "  optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
    )


# ---- the schedule ----------------------------------------------------------------------------------------------


def test_a_schedule_is_made_of_the_optimizer() -> None:
    assert isinstance(require_lr_schedule(lambda optimizer: StepLR(optimizer, 1), sgd()), StepLR)


def test_a_schedule_without_an_optimizer_is_refused() -> None:
    text = refusal(lambda: require_lr_schedule(lambda optimizer: StepLR(optimizer, 1), None))

    assert text == "lr_schedule needs an optimizer, and there is none"


def test_a_schedule_that_was_made_already_is_refused() -> None:
    optimizer = sgd()
    text = refusal(lambda: require_lr_schedule(StepLR(optimizer, 1), optimizer))  # type: ignore[arg-type]

    assert text == (
        "lr_schedule is a StepLR, not a callable of the optimizer\n"
        "  lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)"
    )


def test_a_schedule_that_wants_a_metric_is_refused() -> None:
    text = refusal(lambda: require_lr_schedule(ReduceLROnPlateau, sgd()))

    assert text == (
        "lr_schedule made a ReduceLROnPlateau, which is stepped with a metric, not per epoch\n"
        "  step it in a hook: `def post_eval(self, eval_results)`"
    )


def test_a_callable_that_makes_no_schedule_is_refused() -> None:
    text = refusal(lambda: require_lr_schedule(lambda optimizer: None, sgd()))

    assert text == (
        "lr_schedule made a NoneType, which has no step()\n"
        "  lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)"
    )


# ---- data ------------------------------------------------------------------------------------------------------


def test_evaluation_data_without_a_name_is_called_eval() -> None:
    assert require_eval_data([1]) == {"eval": [1]}


def test_no_evaluation_data_is_no_set() -> None:
    assert require_eval_data(None) == {}


def test_the_set_that_is_of_no_use_is_named() -> None:
    text = refusal(lambda: require_eval_data({"valid": [1], "test": torch.zeros(1)}))

    assert text.startswith("eval_data['test'] must be an iterable of batches, but is a tensor\n")


def ready(train_data: Any = (), train_passes: int = 1, eval_data: Any = None, eval_passes: int = 2) -> None:
    require_ready_to_train(nn.Linear(1, 1), sgd(), train_data, train_passes, eval_data or {}, eval_passes)


def test_training_data_that_lasts_for_one_pass_of_several_is_refused() -> None:
    text = refusal(lambda: ready(iter([1]), train_passes=3))

    assert text == (
        "train_data is a list_iterator, which can be read once, but 3 passes are due\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_evaluation_data_that_lasts_for_one_pass_of_several_is_refused() -> None:
    text = refusal(lambda: ready(eval_data={"valid": (n for n in range(1))}))

    assert text == (
        "eval_data['valid'] is a generator, which can be read once, but 2 passes are due\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_training_data_that_lasts_for_the_one_pass_passes() -> None:
    ready(iter([1]))


# ---- the loss --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, nn.MSELoss(), torch.dot, functools.partial(F.mse_loss, reduction="sum")]
)
def test_a_loss_without_a_prediction_parameter_is_pytorchs(loss: Callable[..., Tensor]) -> None:
    assert loss_by_name(loss) is None


def test_a_loss_with_a_required_prediction_is_called_by_name() -> None:
    def loss(targets: Tensor, prediction: Tensor, weight: float = 1.0) -> Tensor:
        return prediction

    call = loss_by_name(loss)
    assert call is not None

    assert (call.required, call.optional) == (("targets", "prediction"), ("weight",))


def test_a_loss_whose_prediction_has_a_default_is_pytorchs() -> None:
    def loss(a: Tensor, b: Tensor, prediction: None = None) -> Tensor:
        return a

    assert loss_by_name(loss) is None


def test_a_loss_modules_forward_tells_what_it_wants() -> None:
    class Loss(nn.Module):
        def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return prediction

    call = loss_by_name(Loss())
    assert call is not None

    assert (call.required, call.label) == (("prediction", "targets"), "loss Loss")


def test_a_loss_by_names_without_names_is_refused() -> None:
    def loss(prediction: Tensor, *rest: Tensor) -> Tensor:
        return prediction

    with pytest.raises(HookError, match=r"has the parameter `\*rest`, but fixtures are given by name"):
        loss_by_name(loss)


def test_a_loss_class_is_refused() -> None:
    text = refusal(lambda: require_loss(nn.CrossEntropyLoss, None))  # type: ignore[arg-type]

    assert text == "loss is the class CrossEntropyLoss\n  give a function or an instance: loss=nn.CrossEntropyLoss()"


def test_a_loss_with_weights_of_its_own_goes_to_the_device() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.ones(2))
    require_loss(loss, torch.device("meta"))

    assert loss.weight is not None
    assert loss.weight.device.type == "meta"


def test_a_word_as_loss_is_refused() -> None:
    text = refusal(lambda: require_loss("mse", None))  # type: ignore[arg-type]

    assert text == "loss is a str\n  give a function or an instance: loss=nn.CrossEntropyLoss()"


# ---- during a run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch", [torch.zeros(3, 2), [torch.zeros(()), torch.zeros(3)], {"n": 1, "x": torch.zeros(3, 1)}]
)
def test_rows_are_those_of_the_first_tensor_that_has_any(batch: Any) -> None:
    assert rows_of(batch) == 3


@pytest.mark.parametrize("batch", ["text", [], torch.zeros(())])
def test_a_batch_whose_rows_cannot_be_counted_is_refused(batch: Any) -> None:
    text = refusal(lambda: rows_of(batch))

    assert text == (
        f"a batch ({type(batch).__name__}) holds no tensor whose rows could be counted\n"
        "  override get_true_batch_size(self, batch)"
    )


def test_a_number_as_loss_is_refused() -> None:
    text = refusal(lambda: require_scalar_loss(0.5))  # type: ignore[arg-type]

    assert text == "the loss is a float, not a tensor\n  return the tensor itself"


def test_a_loss_per_example_is_refused() -> None:
    text = refusal(lambda: require_scalar_loss(torch.zeros(4)))

    assert text == "the loss has the shape (4,), not that of one number\n  reduce it: loss.mean()"


def test_a_loss_that_needs_no_gradient_is_refused_in_training_only() -> None:
    loss = torch.zeros(())
    text = refusal(lambda: require_training_loss(loss))

    assert require_scalar_loss(loss) is loss
    assert text == (
        "the loss does not require grad, so nothing can be learnt from it\n"
        "  is it computed under no_grad or from detached tensors, or are all parameters frozen?"
    )


@pytest.mark.parametrize("value", [None, [], {"x": 1}])
def test_a_prediction_without_a_tensor_is_refused(value: object) -> None:
    text = refusal(lambda: require_prediction(value, nn.Identity()))

    assert text == (
        f"Identity returned a {type(value).__name__} without a tensor in it\n  does its forward() end with `return`?"
    )


NORMAL = torch.distributions.Normal(0.0, 1.0)


@pytest.mark.parametrize("value", [torch.zeros(1), (1, torch.zeros(1)), {"logits": torch.zeros(1)}, NORMAL])
def test_a_prediction_with_a_tensor_somewhere_passes(value: object) -> None:
    assert require_prediction(value, nn.Identity()) is value


def test_a_pair_is_inputs_and_targets() -> None:
    assert require_parts((1, 2)) == {"inputs": 1, "targets": 2}


@pytest.mark.parametrize("parts", [{}, {"inputs": 1}, {"targets": 2}, {"inputs": 1, "targets": 2}])
def test_a_dict_of_inputs_and_targets_may_lack_some(parts: dict[str, int]) -> None:
    assert require_parts(parts) == parts


@pytest.mark.parametrize(
    ("value", "shown"), [((1, 2, 3), "3 values"), ((1,), "1 values"), ([1, 2], "a list"), (None, "a NoneType")]
)
def test_what_is_neither_pair_nor_dict_is_refused(value: Any, shown: str) -> None:
    text = refusal(lambda: require_parts(value))

    assert text == f'unpack_batch returned {shown}\n  return (inputs, targets), or a dict: {{"inputs": ...}}'


def test_a_part_with_another_name_is_refused() -> None:
    text = refusal(lambda: require_parts({"inputs": 1, "mask": 2}))

    assert text == (
        "unpack_batch returned 'mask' beside inputs and targets\n"
        '  write a fixture of its own: @fixture("train_step_batch") def mask(self, batch): ...'
    )


def test_a_batch_without_targets_is_named_by_its_type() -> None:
    assert str(no_targets({"x": 1})) == (
        "the loss wants targets, and a batch (dict) has none: it is no pair\n"
        "  override unpack_batch(self, batch), or name fixtures in the loss: loss(prediction, inputs)"
    )


# ---- what hooks and overrides hand back --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (-1, "-1"), (2.5, "2.5"), (None, "None"), (True, "True"), ("3", "'3'")]
)
def test_a_batch_size_is_a_whole_number_of_examples(value: Any, shown: str) -> None:
    assert refusal(lambda: require_batch_size(value)) == (
        f"get_true_batch_size must return a whole number of at least 1, but returned {shown}\n"
        "  return how many examples the batch has"
    )


@pytest.mark.parametrize("value", [3, np.int64(3), torch.tensor(3)])
def test_a_batch_size_may_be_a_whole_number_of_another_kind(value: Any) -> None:
    assert require_batch_size(value) == 3


def test_a_loss_that_a_hook_made_a_number_is_refused() -> None:
    with pytest.raises(InputError) as error:
        require_tensor(0.5, "backward_loss")
    assert str(error.value) == (
        "backward_loss is a float, not a tensor: the hook that modified it must return a tensor"
    )


def test_an_optimizer_of_no_parameters_is_refused() -> None:
    assert refusal(lambda: require_optimizer(AdamW, nn.Identity(), None)) == (
        "Identity has no parameters to make an optimizer of\n"
        "  leave the optimizer out, or give one of the parameters that are to be trained"
    )


def test_a_train_dir_is_a_path() -> None:
    assert refusal(lambda: require_train_dir(5)) == (  # type: ignore[arg-type]
        'train_dir is 5\n  give a path: train_dir="runs/first"'
    )


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_train_dir_is_no_file(tmp_path: Path, below: str) -> None:
    path = tmp_path / "file"
    path.touch()
    assert refusal(lambda: require_folder(path / below)) == (
        f"train_dir is {str(path / below)!r}, where a file is in the way\n  give the path of a folder"
    )


# ---- fused optimizers --------------------------------------------------------------------------------------------


class FakeParameter:
    """As much of a parameter as tells where it is."""

    def __init__(self, device: str, dtype: torch.dtype = torch.float32) -> None:
        self.device = torch.device(device)
        self.is_floating_point = lambda: dtype.is_floating_point


def parameters_on(*devices: str) -> Any:
    return [FakeParameter(device) for device in devices]


class OwnSGD(SGD):
    """One of the user's."""


@pytest.mark.parametrize("optimizer", [SGD, AdamW])
def test_a_class_of_torchs_is_fused_where_all_parameters_are_on_a_gpu(optimizer: Any) -> None:
    assert fused_argument(optimizer, parameters_on("cuda", "cuda:0")) == {"fused": True}


@pytest.mark.parametrize("devices", [(), ("cpu",), ("cuda", "cpu"), ("meta",)])
def test_nothing_is_fused_elsewhere(devices: tuple[str, ...]) -> None:
    assert fused_argument(SGD, parameters_on(*devices)) == {}


@pytest.mark.parametrize(
    "optimizer", [OwnSGD, lambda parameters: SGD(parameters, lr=0.1), functools.partial(SGD, lr=0.1), LBFGS]
)
def test_nothing_but_a_class_of_torchs_that_can_be_fused_is_fused(optimizer: Any) -> None:
    assert fused_argument(optimizer, parameters_on("cuda")) == {}


def test_parameters_that_are_no_floating_point_numbers_are_not_fused() -> None:
    assert fused_argument(SGD, [FakeParameter("cuda", torch.int64)]) == {}  # type: ignore[list-item]


def test_an_optimizer_on_the_cpu_is_not_fused() -> None:
    made = require_optimizer(AdamW, nn.Linear(1, 1), None)

    assert made is not None
    assert not made.defaults["fused"]
