"""What `diagnose` tells: a planted fault for each answer, trainings in order, and that it leaves no trace."""

from __future__ import annotations

import math
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

from examples import diffusion, lbfgs, meta_learning
from tests.support.training import At
from train_manager import (
    Endless,
    Extension,
    InMemory,
    InputError,
    SeededDataLoader,
    TrainManager,
    add_loss,
    demo,
    diagnose,
    modifies,
)
from train_manager.errors import ExtensionNotFound, StageError
from train_manager.extensions import EMA, Accumulate, Metrics, default_extensions
from train_manager.telling.findings import Findings
from train_manager.testing import tiny_manager
from train_manager.trials.diagnose import CHECKS

X, Y = tiny_manager().train_data[0]  # type: ignore[index]


class Model(nn.Module):
    """Two layers, and what a test does with the hidden layer and with the outputs."""

    def __init__(self, outputs: int = 2, hidden: Any = None, last: Any = None) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(2, 8), nn.Linear(8, outputs)
        self.hidden, self.last = hidden or (lambda x: x), last or (lambda x: x)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.head(self.hidden(self.body(inputs).tanh())))  # type: ignore[no-any-return]


def squared(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction - targets).square().mean()


def asked(check: str, model: nn.Module | None = None, **options: Any) -> Findings:
    """What one check tells of a tiny training."""
    given: dict[str, Any] = {"model": model or Model(), "eval_data": None, **options}
    return diagnose(tiny_manager(**given), [check], quiet=True)


def regression(model: nn.Module | None = None, **options: Any) -> dict[str, Any]:
    """The options of a training on the sum of two numbers."""
    x = 2 * X - 1
    given = {"model": model or Model(1), "loss": squared, "train_data": [(x, x.sum(1, keepdim=True))]}
    return {**given, "optimizer": lambda p: Adam(p, 0.03), **options}


def list_findings(found: Findings) -> list[str]:
    """What was found, a line each."""
    return [f"{one.level}: {one.what}" + (f" @ {one.where}" if one.where else "") for one in found]


def covered(found: Findings, check: str) -> str:
    """How far a check has looked."""
    return ", ".join(one.text for one in found.covered if one.check == check)


def not_looked_at(found: Findings) -> list[str]:
    assert not found.is_clean
    return [f"{one.check}: {one.text}" for one in found.covered if not one.could_look]


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


@pytest.mark.parametrize("example", [diffusion, lbfgs, meta_learning], ids=lambda one: one.__name__)
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
    found = asked("loss leak", Model(1), loss=squared, train_data=[(X, X.sum(1))])

    assert list_findings(found) == [
        "error: the loss compares each prediction with the targets of all examples: (16, 1) against (16,) @ the loss"
    ]


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_a_detached_branch_is_found() -> None:
    found = asked("parameters", Model(hidden=Tensor.detach))

    assert list_findings(found) == [
        "warning: 2 parameters of the optimizer have no gradient after a backward pass @ body.weight, body.bias"
    ]


def test_a_parameter_that_is_missing_in_the_optimizer_is_found() -> None:
    model = Model()
    found = asked("parameters", model, optimizer=SGD([*model.body.parameters(), model.head.weight], 0.1))

    assert list_findings(found) == ["warning: 1 parameter has a gradient and is in no optimizer @ head.bias"]


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
    found = asked("parameters", Model(hidden=lambda h: 0 * h))

    assert list_findings(found) == [
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


# ---- overfit ---------------------------------------------------------------------------------------------------------


def test_a_learning_rate_of_zero_is_told_without_a_step() -> None:
    found = asked("overfit", optimizer=lambda p: SGD(p, 0.0))

    assert list_findings(found) == ["warning: the learning rate is 0, so nothing is learned"]


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
    found = asked("initial loss", Model(last=lambda o: 100 * o))

    assert list_findings(found) == [
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


# ---- input -----------------------------------------------------------------------------------------------------------


def test_labels_that_the_outputs_have_no_class_for_are_found() -> None:
    found = asked("input", train_data=[(X, 5 * Y)])

    assert list_findings(found) == [
        "error: the labels go from 0 to 5, but the outputs have 2 classes: 0 to 1 @ targets"
    ]


@pytest.mark.parametrize("check", ["overfit", "initial loss"])
def test_a_step_that_fails_is_no_clean_one(check: str) -> None:
    found = asked(check, train_data=[(X, 5 * Y)])

    assert not_looked_at(found) == [
        f"{check}: it failed with LabelsOutOfRange: the labels go from 0 to 5, but the outputs have 2 classes: 0 to 1"
    ]


def test_nan_in_the_data_is_found() -> None:
    x = X.clone()
    x[3, 1] = math.nan
    found = asked("input", train_data=[(x, Y)])

    assert list_findings(found)[0] == "error: 1 of 32 numbers in the inputs is nan or infinite @ batch.0"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ((255 * X).round(), "bytes from 0 to 255 reach the first layer as they are"),
        (1000 * X, "numbers of a scale of 628 reach the first layer"),
    ],
    ids=["bytes", "large"],
)
def test_numbers_that_were_not_scaled_are_found(data: Tensor, what: str) -> None:
    assert list_findings(asked("input", train_data=[(data, Y)])) == [f"warning: {what} @ body (Linear)"]


def test_numbers_that_the_model_scales_itself_are_no_finding() -> None:
    class Scaled(Model):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.float() / 255)

    asked("input", Scaled(), train_data=[((255 * X).byte(), Y)]).require_none()


def test_a_batch_of_one_class_is_found() -> None:
    found = asked("input", train_data=[(X, 0 * Y), (X + 1, 0 * Y + 1)])

    assert list_findings(found) == ["warning: each of the first 2 batches has one class only @ targets"]


def test_a_model_that_answers_the_same_to_all_examples_is_found() -> None:
    found = asked("input", Model(hidden=lambda h: 0 * h))

    assert list_findings(found) == ["warning: the outputs are the same for all 16 examples"]


def test_an_input_that_changes_no_output_is_found() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Model()

        def forward(self, left: Tensor, right: Tensor) -> Any:
            return self.layer(left)

    found = asked("input", TwoInputs(), train_data=[({"left": X, "right": X.flip(0)}, Y)])

    assert list_findings(found) == ["warning: no output depends on an input @ batch.0.right"]


def test_rows_that_are_in_an_evaluation_set_too_are_found_and_counted() -> None:
    evaluated = [(torch.cat([X[:5], X[5:10] + 1]), Y[:10])]
    found = asked("input", train_data=[(X, Y)], eval_data={"valid": evaluated})

    assert list_findings(found) == ["warning: 5 of the 10 rows of evaluation set 'valid' are in train_data @ valid"]
    assert covered(found, "input") == (
        "all 16 rows, compared with all 10 rows of evaluation set 'valid', outputs after 3 steps"
    )


def loader(x: Tensor, y: Tensor, **options: Any) -> Any:
    return DataLoader(TensorDataset(x, y), batch_size=4, **options)


def in_memory(x: Tensor, y: Tensor, **options: Any) -> Any:
    return InMemory(x, y, batch_size=4, **options)


def part(x: Tensor, y: Tensor, **options: Any) -> Any:
    return DataLoader(Subset(TensorDataset(x, y), range(len(x))), batch_size=4, **options)


def seeded(x: Tensor, y: Tensor, **options: Any) -> Any:
    return SeededDataLoader(TensorDataset(x, y), batch_size=4, **options)


MANY = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("made", [loader, in_memory, part, seeded])
def test_all_rows_of_data_in_memory_are_looked_at(made: Any) -> None:
    y, broken = (MANY.sum(1) > 1).long(), MANY.clone()
    broken[150, 0] = math.nan
    found = asked("input", train_data=made(broken, y), eval_data={"valid": made(broken[160:], y[160:], shuffle=True)})

    assert list_findings(found) == [
        "error: 1 of 400 numbers in the inputs is nan or infinite @ batch.0",
        "warning: 40 of the 40 rows of evaluation set 'valid' are in train_data @ valid",
    ]
    assert covered(found, "input") == (
        "all 200 rows, compared with all 40 rows of evaluation set 'valid', outputs after 3 steps"
    )


class Computed(Dataset[Any]):
    """Rows that are made as they are asked for."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        return MANY[index], int(MANY[index].sum() > 1)


def test_rows_that_are_computed_are_read_too() -> None:
    found = asked("input", train_data=DataLoader(Computed(), batch_size=4))

    assert covered(found, "input") == "all 200 rows, outputs after 3 steps"


def test_it_is_told_if_not_all_rows_were_read() -> None:
    found = asked("input", train_data=Endless(in_memory(X, Y)))

    assert covered(found, "input") == "the first 4,000 rows, outputs after 3 steps"


def test_rows_that_a_sampler_leaves_out_are_not_those_of_the_training() -> None:
    data = TensorDataset(MANY, (MANY.sum(1) > 1).long())
    halves = [DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(n, n + 60))) for n in (0, 60)]
    found = asked("input", train_data=halves[0], eval_data={"valid": halves[1]})

    assert list_findings(found) == []
    assert covered(found, "input").startswith("all 60 rows, compared with all 60 rows of evaluation set 'valid'")


def test_the_training_data_as_an_evaluation_set_are_a_note() -> None:
    data = in_memory(X, Y)
    found = asked("input", train_data=data, eval_data={"valid": data})

    assert list_findings(found) == [
        "note: 16 of the 16 rows of evaluation set 'valid' are in train_data itself @ valid"
    ]


def test_a_set_to_measure_the_training_with_is_a_note() -> None:
    found = asked("input", train_data=[(X, Y)], eval_data={"train": [(X.clone(), Y)]})

    assert [one.level for one in found] == ["note"]


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

    assert not_looked_at(diagnose(tm, ["batch leak"], quiet=True)) == [
        "batch leak: model_forward failed with NotImplementedError: Module [ModuleDict] is missing the required "
        '"forward" function, while train_batch calls the model in another way: override model_forward too'
    ]


def test_rows_of_an_evaluation_set_that_are_built_otherwise_are_not_compared() -> None:
    found = asked("input", train_data=[(X, Y)], eval_data={"valid": [({"x": X}, Y)]})

    assert covered(found, "input").startswith("all 16 rows, not compared with those of evaluation set 'valid'")


def test_an_evaluation_set_that_can_be_read_once_is_not_read_and_never_called_clean() -> None:
    evaluated = map(tuple, [(X, Y)])
    found = asked("input", eval_data={"valid": evaluated})

    assert not_looked_at(found) == ["input: evaluation set 'valid' can be read once, so it was not read"]
    assert len(list(evaluated)) == 1


def test_a_generator_is_not_read() -> None:
    data = (pair for pair in [(X, Y)])
    asked("input", train_data=data, epochs=1)

    assert len(list(data)) == 1


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


# ---- how it is asked -------------------------------------------------------------------------------------------------


def test_an_unknown_check_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(InputError) as caught:
        diagnose(tiny_manager(), ["overfitt"])
    assert str(caught.value) == (
        "diagnose has no check 'overfitt'\n"
        "  did you mean 'overfit'? there are 'batch leak', 'loss leak', 'parameters', 'overfit', "
        "'initial loss', 'input'"
    )


@pytest.mark.parametrize("checks", [3, 0, [3]])
def test_what_is_no_name_of_a_check_is_refused(checks: Any) -> None:
    number = checks[0] if isinstance(checks, list) else checks
    with pytest.raises(InputError) as caught:
        diagnose(tiny_manager(), checks)
    assert str(caught.value) == (
        f"diagnose has no check {number}\n"
        "  there are 'batch leak', 'loss leak', 'parameters', 'overfit', 'initial loss', 'input'"
    )


def test_a_model_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        diagnose(nn.Linear(2, 2))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "diagnose takes a TrainManager, but was given a Linear\n"
        "  tm = TrainManager(model=model, ...), then diagnose(tm); check_batch_leak(model, batch) takes a model"
    )


def test_an_open_run_is_refused() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(StageError) as caught:
        diagnose(tm)
    assert str(caught.value) == (
        "diagnose cannot be called while a run is open\n  open stages  run\n  call it before the run, or after it"
    )


@pytest.mark.parametrize("keep", [["mixed_precision"], "mixed_precision"])
def test_an_extension_to_keep_that_is_not_there_is_refused(keep: Any) -> None:
    with pytest.raises(ExtensionNotFound, match="has no extension 'mixed_precision'"):
        diagnose(tiny_manager(), keep=keep)


def test_each_check_is_told_as_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    diagnose(tiny_manager(), ["initial loss", "parameters"])

    assert capsys.readouterr() == ("", "diagnose: parameters (1 of 2)\ndiagnose: initial loss (2 of 2)\n")


def test_extensions_pause_unless_they_are_kept() -> None:
    seen: list[str] = []
    watching = {
        "kept": At("post_train_step_batch", lambda: seen.append("kept")),
        "other": At("post_train_step_batch", lambda: seen.append("other")),
    }
    diagnose(tiny_manager(extensions=watching), ["initial loss"], keep=["kept"], quiet=True)

    assert set(seen) == {"kept"}


# ---- that it leaves no trace -----------------------------------------------------------------------------------------


def noisy(**options: Any) -> TrainManager:
    """A training with dropout, running statistics, an average, windows, and rows in an order that is drawn."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    data = InMemory(torch.rand(40, 2), torch.randint(2, (40,)), batch_size=16, shuffle=True)
    given = {"model": model, "optimizer": Adam, "train_data": data, "eval_data": {"valid": [(X, Y)]}, "epochs": 2}
    return tiny_manager(Metrics(), EMA(0.9), Accumulate(2), **{**given, **options})


def result_of(tm: TrainManager) -> dict[str, Any]:
    """All that the training has come to, to the bit."""
    state = tm.state_dict()
    seconds = {"seconds": 0}
    rows = [{**row, **seconds} for row in tm.history.epochs]
    return {
        **{name: state[name] for name in ("model", "optimizers", "extensions", "counts", "random", "findings")},
        "history": [rows, tm.history.evaluations],
        "modes": [module.training for module in tm.model.modules()],
        "gradients": [parameter.grad for parameter in tm.model.parameters()],
    }


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor | np.ndarray):
        assert one.tobytes() == other.tobytes() if isinstance(one, np.ndarray) else torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_same(value, other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for value, another in zip(one, other, strict=True):
            assert_same(value, another)
    else:
        assert one == other


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("steps", [0, 4], ids=["at the start", "within an epoch"])
def test_a_training_after_it_is_to_the_bit_the_training_without_it(steps: int, seed: int | None) -> None:
    results: list[dict[str, Any]] = []
    for looks in (False, True):
        tm = noisy(seed=seed)
        if steps:
            tm.train_steps(steps)
        if looks:
            diagnose(tm, quiet=True)
        tm.train()
        results.append(result_of(tm))

    assert_same(*results)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_it_leaves_nothing_behind_after_an_error(error: type[BaseException]) -> None:
    def fail(epoch_num: int) -> None:
        calls.append(epoch_num)
        if len(calls) == 4:
            raise error

    calls: list[int] = []
    tm = noisy()
    tm.train_steps(4)
    before = result_of(tm)
    tm.add_extension(At("post_train_step_batch", fail), "fails")
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            diagnose(tm, ["overfit"], keep=["fails"], quiet=True)
    else:
        found = diagnose(tm, ["overfit"], keep=["fails"], quiet=True)
        assert not_looked_at(found) == ["overfit: it failed with ZeroDivisionError: "]
    tm.remove_extension("fails")

    assert len(calls) == 4
    assert_same(result_of(tm), before)


def test_a_training_after_it_tells_of_its_parameters_as_without_it() -> None:
    tm = tiny_manager(model=Model(hidden=Tensor.detach), eval_data=None)
    diagnose(tm, ["parameters"], quiet=True)

    assert tm.findings == []
    with pytest.warns(UserWarning, match="have no gradient"):
        tm.train_steps(10)


def test_no_folder_and_no_file_is_left(tmp_path: Path) -> None:
    tm = tiny_manager(extensions=default_extensions(), train_dir=tmp_path / "runs" / "digits")
    diagnose(tm, ["initial loss"], quiet=True)

    assert list(tmp_path.iterdir()) == []


def test_the_batches_are_as_they_were_if_the_model_writes_into_them() -> None:
    class Writes(Model):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.add_(1))

    x = X.clone()
    asked("overfit", Writes(), train_data=[(x, Y)])

    assert torch.equal(x, X)


def test_no_warning_of_its_steps_is_shown() -> None:
    model = Model()
    model.requires_grad_(False)
    found = asked("parameters", model)  # warnings are errors here

    assert not found.is_clean


class Halves(Extension):
    """Give the model the inputs that it was made for."""

    @modifies("inputs")
    def pre_train_model_forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :2]


def test_a_paused_extension_that_modifies_the_inputs_is_named_where_a_check_could_not_look() -> None:
    wide = [(torch.rand(16, 4), torch.arange(16) % 2)]
    tm = tiny_manager(Halves(), train_data=wide, eval_data=None)

    found = diagnose(tm, ["initial loss", "overfit"], quiet=True)
    assert list_findings(found) == ["note: paused while the checks looked, and modifies what is trained on @ halves"]
    assert found[0].cure == "if the training needs it: diagnose(tm, keep=['halves'])"
    assert diagnose(tm, ["initial loss"], keep=["halves"], quiet=True).is_clean


def test_a_paused_extension_is_not_named_if_all_is_clean() -> None:
    class Same(Extension):
        @modifies("inputs")
        def pre_train_model_forward(self, inputs: Tensor) -> Tensor:
            return inputs

    assert len(diagnose(tiny_manager(Same()), ["initial loss"], quiet=True)) == 0
