from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from train_manager.checks.parameters import check_parameters
from train_manager.telling.findings import Findings

X, Y = torch.linspace(-1, 1, 8).reshape(4, 2), torch.tensor([0, 1, 0, 1])


def net(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), *between, nn.Linear(4, 2))


def after_a_backward(model: nn.Module, optimizers: Any = None, loss: Any = None) -> Findings:
    loss = loss or F.cross_entropy
    loss(model(X), Y).backward()
    return check_parameters(model, optimizers or SGD(model.parameters(), lr=0.1), loss)


def list_findings(findings: Findings) -> list[tuple[str, str, str]]:
    return [(one.level, one.what, one.where) for one in findings]


def test_a_training_of_all_parameters_is_clean() -> None:
    findings = after_a_backward(net(nn.BatchNorm1d(4), nn.Dropout(0.1)))

    assert str(findings) == "parameters  clean: 6 parameters, 1 optimizer, train mode"
    findings.require_none()


def test_before_a_backward_it_could_not_look() -> None:
    model = net()
    findings = check_parameters(model, SGD(model.parameters(), lr=0.1))

    assert [(one.could_look, one.text) for one in findings.covered] == [
        (False, "no parameter has a gradient: it looks after a backward pass, before the gradients are freed")
    ]


def test_without_an_optimizer_it_could_not_look() -> None:
    assert str(check_parameters(net(), {})) == "parameters  could not look: there is no optimizer"


def test_a_missing_parameter_is_told() -> None:
    model = net()

    assert list_findings(after_a_backward(model, SGD(model[0].parameters(), lr=0.1))) == [
        ("warning", "2 parameters have a gradient and are in no optimizer", "1.weight, 1.bias")
    ]


def test_a_parameter_without_a_gradient_is_told() -> None:
    model = net()
    model[0].bias.requires_grad_(False)
    model(X).sum().backward()
    model[0].bias.requires_grad_(True)

    assert list_findings(check_parameters(model, SGD(model.parameters(), lr=0.1))) == [
        ("warning", "1 parameter of the optimizer has no gradient after a backward pass", "0.bias")
    ]


def test_gradients_of_zeros_are_told() -> None:
    model = net()
    nn.init.zeros_(model.get_parameter("1.weight"))

    assert list_findings(after_a_backward(model)) == [
        ("warning", "2 parameters of the optimizer have a gradient of zeros alone", "0.weight, 0.bias")
    ]


def test_a_bias_that_a_loss_of_differences_does_not_see_is_a_note() -> None:
    model = net(nn.Tanh())
    outputs = model(torch.ones(3, 2) * torch.arange(3.0).unsqueeze(1))
    (outputs[1] - outputs[0]).sum().backward()
    found = check_parameters(model, SGD(model.parameters(), lr=0.1))

    what = "1 parameter of the optimizer has a gradient of zeros alone, in a layer that learns"
    assert list_findings(found) == [("note", what, "2.bias")]


def test_sparse_gradients_are_looked_at() -> None:
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True))
    model(torch.tensor([1, 2])).sum().backward()

    assert list_findings(check_parameters(model, SGD(model.parameters(), lr=0.1))) == []


def test_a_parameter_in_two_optimizers_is_told() -> None:
    model = net()
    optimizers: dict[str, Optimizer] = {"all": SGD(model.parameters()), "head": SGD(model[1].parameters())}

    assert list_findings(after_a_backward(model, optimizers)) == [
        ("warning", "2 parameters are in several optimizers", "1.weight, 1.bias")
    ]


class Hiding(nn.Module):
    """Keeps layers where no one finds their parameters."""

    def __init__(self, *, learns: bool) -> None:
        super().__init__()
        self.head, self.hidden, self.learns = nn.Linear(2, 2), {"layers": [nn.Linear(2, 2)]}, learns

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(self.learns):
            hidden = self.hidden["layers"][0](inputs)
        return self.head(hidden)  # type: ignore[no-any-return]


def test_layers_that_learn_in_a_list_are_an_error_and_a_teacher_in_it_is_not() -> None:
    places = "a tensor of shape (2, 2), a tensor of shape (2,)"

    assert list_findings(after_a_backward(Hiding(learns=True))) == [
        ("error", "2 tensors that learn are not among the parameters of the model", places)
    ]
    assert list_findings(after_a_backward(Hiding(learns=False))) == []


def test_a_frozen_head_in_a_group_of_its_own_is_told() -> None:
    model = net()
    model[1].requires_grad_(False)
    groups: list[dict[str, Any]] = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 1.0}]

    assert list_findings(after_a_backward(model, SGD(groups, lr=0.1))) == [
        ("warning", "2 parameters are frozen, and a group of the optimizer has no other", "1.weight, 1.bias")
    ]


def test_a_frozen_parameter_among_others_is_a_note() -> None:
    model = net()
    model[0].requires_grad_(False)
    findings = after_a_backward(model)

    assert list_findings(findings) == [
        ("note", "2 parameters of the optimizer are frozen, beside others that are trained", "0.weight, 0.bias")
    ]
    findings.require_none()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(prediction * self.scale, targets)


def test_a_parameter_of_the_loss_that_was_left_out_is_told() -> None:
    assert list_findings(after_a_backward(net(), loss=Scaled())) == [
        ("warning", "1 parameter of the loss is in no optimizer", "loss.scale")
    ]


@pytest.mark.parametrize(
    ("layer", "kind"), [(nn.BatchNorm1d(4), "norm"), (nn.Dropout(0.5), "dropout")], ids=["norm", "dropout"]
)
def test_a_layer_in_eval_mode_is_told_while_the_model_is_in_train_mode(layer: nn.Module, kind: str) -> None:
    model = net(layer)
    layer.eval()

    assert list_findings(after_a_backward(model)) == [
        ("warning", f"1 {kind} is in eval mode, while the model is trained", "1")
    ]


def test_layers_in_eval_mode_of_a_model_in_eval_mode_or_that_are_frozen_are_no_finding() -> None:
    frozen = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval().requires_grad_(False)
    model, evaluated = net(frozen), net(nn.Dropout(0.5)).eval()
    trained = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    assert list_findings(after_a_backward(model, trained)) == []
    assert list_findings(after_a_backward(evaluated)) == []
