"""What `diagnose` tells: a planted fault for each answer, trainings in order, and that it leaves no trace."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, Dataset

from examples import diffusion, lbfgs, meta_learning
from tests.trials.diagnosed import Model, X, Y, asked, covered, list_findings, not_looked_at, regression, said, squared
from train_manager import (
    InMemory,
    TrainManager,
    demo,
    diagnose,
)
from train_manager.testing import tiny_manager
from train_manager.trials.diagnose import CHECKS

# ---- trainings in order ----------------------------------------------------------------------------------------------


def test_a_training_in_order_is_clean_in_all_checks() -> None:
    found = diagnose(tiny_manager(), quiet=True)

    found.require_none()
    assert list_findings(found) == [
        "note: 32 of the 32 rows of evaluation set 'valid' are in train_data itself @ valid"
    ]
    assert list(dict.fromkeys(one.check for one in found.covered)) == [*CHECKS]


def test_a_regression_in_order_is_clean_in_all_checks() -> None:
    found = diagnose(tiny_manager(**regression(eval_data=None)), quiet=True)

    found.require_none()
    assert list_findings(found) == []


@pytest.mark.parametrize(
    "example",
    [lbfgs, *(pytest.param(one, marks=pytest.mark.whole) for one in (diffusion, meta_learning))],
    ids=lambda one: one.__name__,
)
def test_an_example_has_no_error_and_no_warning(example: Any) -> None:
    torch.manual_seed(0)

    assert {one.level for one in diagnose(example.manager(), quiet=True)} <= {"note"}


def test_the_model_of_the_demo_has_no_error_and_no_warning() -> None:
    torch.manual_seed(0)
    layers = [demo.convolution(1, 32), demo.convolution(32, 64), demo.convolution(64, 128)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(128, 10))
    data = InMemory(torch.rand(64, 1, 8, 8), torch.randint(10, (64,)), batch_size=32, shuffle=True)
    found = diagnose(tiny_manager(model=model, optimizer=Adam, train_data=data, eval_data=None), quiet=True)

    found.require_none()
    assert [one.where for one in found] == ["0.1, 1.1, 2.1"]  # norms over the batch: a note


def test_the_answer_is_a_table() -> None:
    found = diagnose(tiny_manager(**regression(eval_data=None)), ["initial loss", "input"], quiet=True)

    assert str(found) == (
        "initial loss  clean: mse_loss 0.836 against 0.698 (the variance of the targets)\n"
        "input         clean: all 16 rows, outputs after 3 steps"
    )


# ---- batch leak ------------------------------------------------------------------------------------------------------


def test_modes_are_those_that_train_sets_whatever_the_model_came_in() -> None:
    class Resting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1)), nn.Linear(8, 2)

        def train(self, mode: bool = True) -> Resting:
            super().train(mode)
            self.body.eval()
            return self

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(self.body(inputs))  # type: ignore[no-any-return]

    assert list_findings(asked("parameters", Resting())) == [
        "warning: 1 dropout is in eval mode, while the model is trained @ body.1"
    ]
    assert covered(asked("batch leak", Model().eval()), "batch leak").endswith("changes ran, train mode")


def test_a_model_that_mixes_examples_is_found() -> None:
    found = asked("batch leak", Model(hidden=lambda h: h - h.mean(0)))

    assert [one.check for one in found] == ["batch leak"]
    assert found[0].level == "error"


def test_a_loss_that_stretches_the_targets_is_found() -> None:
    assert said("loss leak", Model(1), loss=squared, train_data=[(X, X.sum(1))]) == [
        "error: the loss compares each prediction with the targets of all examples: (16, 1) against (16,) @ the loss"
    ]


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_a_detached_branch_is_found() -> None:
    assert said("parameters", Model(hidden=Tensor.detach)) == [
        "warning: 2 parameters of the optimizer have no gradient after a backward pass @ body.weight, body.bias"
    ]


def test_a_parameter_that_is_missing_in_the_optimizer_is_found() -> None:
    model = Model()
    assert said("parameters", model, optimizer=SGD([*model.body.parameters(), model.head.weight], 0.1)) == [
        "warning: 1 parameter has a gradient and is in no optimizer @ head.bias"
    ]


class Listed(Model):
    """Its second layer is in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 8)]
        self.hidden = self.layers[0]._call_impl


def test_layers_in_a_plain_list_are_found() -> None:
    found = asked("parameters", Listed())

    assert list_findings(found) == [
        "error: 2 tensors that learn are not among the parameters of the model "
        "@ a tensor of shape (8, 8), a tensor of shape (8,)"
    ]
    assert found[0].cure == (
        "keep layers in an nn.ModuleList, not in a list; give a tensor as nn.Parameter; or freeze them: "
        "requires_grad_(False)"
    )


def test_a_teacher_in_a_plain_list_that_was_trained_before_is_no_finding() -> None:
    model = Listed()
    model.hidden = lambda x: x + model.layers[0](x).detach()
    model.layers[0].weight.grad = stale = torch.ones(8, 8)

    asked("parameters", model).require_none()
    assert model.layers[0].weight.grad is stale


def frozen_teacher() -> nn.Module:
    """A frozen module with statistics, in train mode."""
    return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).requires_grad_(False)


def distilling(teacher: nn.Module) -> Any:
    return lambda prediction, targets: (
        F.cross_entropy(prediction, targets) + F.mse_loss(prediction, teacher(prediction.detach()))
    )


def test_a_frozen_teacher_whose_statistics_change_is_found() -> None:
    found = asked("parameters", loss=distilling(frozen_teacher()))

    assert list_findings(found) == [
        "warning: a Sequential that no optimizer trains is in train mode, so its statistics change @ 0"
    ]
    assert found[0].cure == "call its eval() before the training"


def test_a_frozen_teacher_that_is_an_attribute_of_the_manager_is_looked_at() -> None:
    class Distilling(TrainManager):
        teacher: nn.Module

        def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
            self.update(distilling(self.teacher)(self.model(inputs), targets))

    tm = Distilling(model=Model(), train_data=[(X, Y)], optimizer=lambda p: SGD(p, 0.1))
    tm.teacher = frozen_teacher()
    assert [one.level for one in diagnose(tm, ["parameters"], quiet=True)] == ["warning"]


def test_a_teacher_in_eval_mode_or_one_that_follows_the_model_is_no_finding() -> None:
    asked("parameters", loss=distilling(frozen_teacher().eval())).require_none()

    mean = frozen_teacher()

    def following(prediction: Tensor, targets: Tensor) -> Tensor:
        for one in mean.parameters():
            one.data.mul_(0.99).add_(0.01 * prediction.detach().mean())
        return distilling(mean)(prediction, targets)  # type: ignore[no-any-return]

    asked("parameters", loss=following).require_none()


def test_tensors_that_an_optimizer_has_or_that_each_step_makes_are_no_finding() -> None:
    class Attacked(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
            self.update(F.cross_entropy(model(inputs.detach().requires_grad_()), targets))

    model = Listed()
    optimizer = SGD([*model.parameters(), *model.layers[0].parameters()], 0.1)
    tm = Attacked(model=model, train_data=[(X, Y)], optimizer=optimizer)

    diagnose(tm, ["parameters"], quiet=True).require_none()


def test_a_frozen_head_is_told() -> None:
    model = Model()
    model.head.requires_grad_(False)
    found = asked("parameters", model)

    assert list_findings(found) == [
        "note: 2 parameters of the optimizer are frozen, beside others that are trained @ head.weight, head.bias"
    ]
    assert found.covered[0].text == "4 parameters (2 trained, 2 frozen), 1 optimizer, train mode"


def test_gradients_of_zero_after_three_steps_are_found() -> None:
    assert said("parameters", Model(hidden=lambda h: 0 * h)) == [
        "warning: 3 parameters of the optimizer have a gradient of zeros alone @ body.weight, body.bias, head.weight"
    ]


def test_a_layer_that_begins_with_zeros_is_none_of_these() -> None:
    model = Model()
    nn.init.zeros_(model.head.weight)
    diagnose(tiny_manager(model=model, eval_data=None), ["parameters", "input"], quiet=True).require_none()


class Skipping(Model):
    """Leaves its body out in all steps but some, or multiplies it by zero."""

    def __init__(self, steps: set[int], *, multiplied: bool) -> None:
        super().__init__()
        self.steps, self.multiplied, self.calls = steps, multiplied, 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += self.training
        if self.calls in self.steps:
            return super().forward(input)
        return super().forward(input) * 0 + input if self.multiplied else input * self.head.weight.sum()


@pytest.mark.parametrize("multiplied", [True, False])
def test_blocks_that_are_left_out_at_random_are_no_finding(multiplied: bool) -> None:
    asked("parameters", Skipping({1, 6}, multiplied=multiplied)).require_none()


def test_a_block_that_only_the_first_step_has_trained_is_found() -> None:
    found = asked("parameters", Skipping({1}, multiplied=True))

    assert [one.what for one in found] == ["4 parameters of the optimizer have a gradient of zeros alone"]


def test_the_gradients_of_each_of_several_optimizers_are_looked_at() -> None:
    model = Model(hidden=lambda h: 0 * h)
    optimizers = {"one": SGD(model.body.parameters(), 0.1), "other": SGD(model.head.parameters(), 0.1)}

    class Alternating(TrainManager):
        def train_batch(self) -> None:
            for name in optimizers:
                self.update(self.forward(), optimizer=name)

    tm = Alternating(model=model, loss=F.cross_entropy, train_data=[(X, Y)], optimizer=optimizers)
    found = diagnose(tm, ["parameters"], quiet=True)

    assert list_findings(found) == [
        "warning: 2 parameters of optimizer 'one' have a gradient of zeros alone @ body.weight, body.bias",
        "warning: 1 parameter of optimizer 'other' has a gradient of zeros alone @ head.weight",
    ]


class TakesTurns(TrainManager):
    """Each of two optimizers has a loss, that of the first multiplies the part of the second by zero."""

    def train_batch(self, model: Any, inputs: Tensor) -> None:
        self.update((model[0](inputs) ** 2 + 0 * model[1](inputs)).mean() + 1, optimizer="one")
        self.update((model[1](inputs) ** 2).mean() + 1, optimizer="other")


def two_optimizers() -> TrainManager:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizers = {"one": SGD(model[0].parameters(), 0.1), "other": SGD(model[1].parameters(), 0.1)}
    return TakesTurns(model=model, train_data=[(X, Y)], optimizer=optimizers)


def test_the_gradients_of_an_optimizer_are_those_of_its_own_loss() -> None:
    diagnose(two_optimizers(), ["parameters"], quiet=True).require_none()


def test_several_optimizers_are_named_where_a_batch_is_not_learned() -> None:
    found = diagnose(two_optimizers(), ["overfit"], quiet=True)

    assert "several optimizers" in found[0].what


# ---- what cannot be looked at ----------------------------------------------------------------------------------------


READ_AGAIN = "give a list, a DataLoader, or an object with __iter__"


class TrainsItself:
    def train_step(self, batch: Any) -> Tensor:
        raise AssertionError


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"train_data": iter([(X, Y)])},
            f"train_data is a list_iterator, which can be read once, so its batches cannot be put back: {READ_AGAIN}",
        ),
        (
            {"train_data": (pair for pair in [(X, Y)])},
            f"train_data is a generator, which can be read once, so its batches cannot be put back: {READ_AGAIN}",
        ),
        ({"train_data": None}, "there is no train_data to train on: pass train_data=batches"),
        (
            {"model": nn.LazyLinear(2)},
            "the model has lazy parameters, which have no values yet that could be put back: "
            "call the model once before: model(inputs)",
        ),
        ({"optimizer": None}, "it failed with InputError: there is no optimizer to train with"),
    ],
    ids=["iterator", "map", "no data", "lazy", "no optimizer"],
)
def test_what_cannot_be_looked_at_is_never_called_clean(options: dict[str, Any], why: str) -> None:
    found = diagnose(tiny_manager(**{**options, "epochs": 1}), [*CHECKS][:4], quiet=True)

    assert not_looked_at(found) == [f"{check}: {why}" for check in [*CHECKS][:4]]


def test_a_model_that_trains_itself_is_never_called_clean() -> None:
    found = diagnose(TrainManager(model=TrainsItself(), train_data=[(X, Y)], epochs=1), quiet=True)

    why = "TrainsItself trains itself: what it changes could not be put back"
    assert not_looked_at(found) == [f"{check}: {why}" for check in CHECKS]


def test_a_model_that_train_batch_calls_in_another_way_could_not_be_asked() -> None:
    class Own(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
            self.update(F.cross_entropy(model["layer"](inputs), targets))

    tm = Own(model=nn.ModuleDict({"layer": Model()}), train_data=[(X, Y)], optimizer=lambda p: SGD(p, 0.1))

    assert not_looked_at(diagnose(tm, ["batch leak", "loss leak"], quiet=True)) == [
        "batch leak: model_forward failed with NotImplementedError: Module [ModuleDict] is missing the required "
        '"forward" function, while train_batch calls the model in another way: override model_forward too',
        "loss leak: train_batch makes no prediction by forward()",
    ]


def test_rows_of_an_evaluation_set_that_are_built_otherwise_are_not_compared() -> None:
    found = asked("input", train_data=[(X, Y)], eval_data={"valid": [({"x": X}, Y)]})

    assert covered(found, "input").startswith("all 16 rows, not compared with those of evaluation set 'valid'")


def test_an_evaluation_set_that_can_be_read_once_is_not_read_and_never_called_clean() -> None:
    evaluated = map(tuple, [(X, Y)])
    found = asked("input", eval_data={"valid": evaluated})

    assert not_looked_at(found) == ["input: evaluation set 'valid' can be read once, so it was not read"]
    assert len(list(evaluated)) == 1


def test_data_that_fail_are_never_called_clean() -> None:
    class Broken(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            raise OSError("image 3 is cut off")

    found = asked("input", train_data=DataLoader(Broken()))

    assert not_looked_at(found) == ["input: train_data failed with OSError: image 3 is cut off"]


def test_a_loss_that_is_made_in_train_batch_is_never_called_clean() -> None:
    class Own(TrainManager):
        def train_batch(self, inputs: Tensor, targets: Tensor, model: nn.Module) -> None:
            self.fixtures["prediction"] = model(inputs)
            self.update(F.cross_entropy(self.fixtures["prediction"], targets))

    tm = Own(model=Model(), optimizer=SGD, train_data=[(X, Y)])

    assert not_looked_at(diagnose(tm, ["loss leak"], quiet=True)) == [
        "loss leak: the loss is made in train_batch, or in the model"
    ]


def test_a_batch_of_one_is_never_called_clean() -> None:
    tm = tiny_manager(train_data=[(X[:1], Y[:1])], eval_data=None)

    assert not_looked_at(diagnose(tm, ["batch leak", "loss leak", "input"], quiet=True)) == [
        "batch leak: the batch has one example only",
        "loss leak: there are less than two examples",
        "input: the batch has one example only, so that outputs cannot be compared",
    ]


def test_batches_without_tensors_are_never_called_clean() -> None:
    class Words(Model):
        def forward(self, inputs: Any) -> Tensor:
            return super().forward(torch.tensor([[float(len(word)), 1.0] for word in inputs]))

    found = asked("input", Words(), train_data=[(["a", "bb"], Y[:2])])

    assert {*not_looked_at(found)} == {"input: the batches hold no tensors"}
    assert str(found) == "input  could not look: the batches hold no tensors"


def test_what_the_time_does_not_suffice_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["train_manager.trials.first_steps"], "perf_counter", count(step=50).__next__)

    assert not_looked_at(asked("overfit")) == ["overfit: left out: the 60 seconds were over"]


def test_a_check_that_would_take_longer_than_the_rest_of_the_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["train_manager.trials.first_steps"], "perf_counter", count(step=3).__next__)

    assert not_looked_at(asked("batch leak")) == ["batch leak: left out: it would take about 135 seconds"]
