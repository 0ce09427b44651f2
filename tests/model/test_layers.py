from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import SGD

from tests.model.test_modules import Compiled
from train_manager.model.layers import layers_of


def net() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), nn.ReLU(), nn.Linear(3, 2))


def labels(model: nn.Module, optimizer: SGD | None = None) -> list[str]:
    return [layer.label for layer in layers_of(model, optimizer)]


def test_a_label_tells_the_class_of_a_module() -> None:
    assert labels(net()) == ["0.0 Linear", "0.1 BatchNorm1d", "2 Linear"]


def test_only_parameters_of_the_optimizer_are_there() -> None:
    model = net()
    last, bias = model.get_parameter("2.weight"), model.get_parameter("0.1.bias")
    found = layers_of(model, SGD([last, bias], lr=0.1))

    assert [layer.label for layer in found] == ["0.1 BatchNorm1d", "2 Linear"]
    assert found[1].parameters[0] is last
    assert [len(layer.parameters) for layer in found] == [1, 1]


def test_a_frozen_parameter_of_the_optimizer_is_there() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    model[2].requires_grad_(False)

    assert labels(model, optimizer) == labels(net())


def test_tied_weights_are_of_the_first_module() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False), nn.Linear(3, 4))
    model[1].weight = model[0].weight
    model[2].weight = model[0].weight
    found = layers_of(model, SGD(model.parameters(), lr=0.1))

    assert [(layer.label, len(layer.parameters)) for layer in found] == [("0 Embedding", 1), ("2 Linear", 1)]


def test_a_module_that_is_used_twice_is_one_layer() -> None:
    shared = nn.Linear(2, 2)

    assert labels(nn.Sequential(shared, nn.ReLU(), shared)) == ["0 Linear"]


def test_a_model_without_modules_is_its_class() -> None:
    assert labels(nn.Linear(2, 2)) == ["Linear"]


def test_parameters_in_a_list_are_of_the_list() -> None:
    model = nn.Module()
    model.halves = nn.ParameterList([torch.zeros(2), torch.zeros(2)])
    model.scale = nn.Parameter(torch.zeros(()))

    assert labels(model) == ["Module", "halves ParameterList"]


def test_parameters_of_a_loss_are_outside_of_the_model() -> None:
    model, loss = net(), nn.PReLU()
    found = layers_of(model, SGD([*model.parameters(), *loss.parameters()], lr=0.1))

    assert (found[-1].label, len(found[-1].parameters)) == ("outside of the model", 1)


def test_a_parametrized_weight_is_of_its_layer() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 3)), nn.Linear(3, 2))

    assert [(layer.label, len(layer.parameters)) for layer in layers_of(model)] == [
        ("0 ParametrizedLinear", 3),
        ("1 Linear", 2),
    ]


def test_a_compiled_model_has_the_names_of_the_model() -> None:
    assert labels(Compiled(net())) == labels(net())


def test_the_parameters_are_all_there_once() -> None:
    model = net()

    assert [id(one) for layer in layers_of(model) for one in layer.parameters] == [*map(id, model.parameters())]


def test_a_label_has_the_class_that_a_sharded_module_was_made_of() -> None:
    class FSDPModule:  # as torch.distributed.fsdp.fully_shard makes it
        pass

    model = net()
    model[2].__class__ = type("FSDPLinear", (FSDPModule, nn.Linear), {})

    assert labels(model) == ["0.0 Linear", "0.1 BatchNorm1d", "2 Linear"]
