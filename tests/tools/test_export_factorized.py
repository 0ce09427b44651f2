"""Layers of low rank in a copy of a model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.refusals import refusal
from train_manager import InputError
from train_manager.tools.export import factorize, load_factorized


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 9),
    )


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("share", [0.5, 0.3, 0.1])
def test_no_more_than_the_share_of_the_parameters_is_left_and_not_much_less(share: float) -> None:
    model = network()
    left = count(factorize(model, share))

    widest = 256 + 64  # the parameters of one rank of the largest layer
    assert share * count(model) - widest <= left <= share * count(model)


def test_the_outputs_of_a_linear_layer_change_by_at_most_the_largest_dropped_value_times_the_inputs_length() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(32, 24), torch.randn(100, 32)
    values = torch.linalg.svdvals(layer.weight)
    with torch.no_grad():
        errors = (factorize(layer, rank=7)(inputs) - layer(inputs)).norm(dim=1) / inputs.norm(dim=1)

    # The first dropped value is the eighth; of inputs in its direction, this bound is the error.
    assert errors.max() <= values[7] * (1 + 1e-5)
    direction = torch.linalg.svd(layer.weight)[2][7]
    with torch.no_grad():
        error = (factorize(layer, rank=7)(direction) - layer(direction)).norm()
    torch.testing.assert_close(error, values[7], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(6, 8, 5, stride=2, padding=2, padding_mode="circular"), (3, 6, 20)),
        (nn.Conv2d(6, 8, 3, dilation=2, bias=False), (3, 6, 9, 9)),
        (nn.Conv3d(3, 8, 3, padding="same"), (2, 3, 4, 4, 4)),
        (nn.Linear(24, 24), (3, 24)),
    ],
)
def test_a_weight_that_has_the_rank_is_split_without_an_error(layer: Any, shape: tuple[int, ...]) -> None:
    with torch.no_grad():
        matrix = layer.weight.flatten(1)
        low = torch.randn(len(matrix), 2) @ torch.randn(2, matrix.shape[1])
        layer.weight.copy_(low.view_as(layer.weight))
        inputs = torch.randn(shape)

        made: Any = factorize(layer, rank=2)

        assert count(made) < count(layer)
        torch.testing.assert_close(made(inputs), layer(inputs), rtol=1e-4, atol=1e-4)


def test_values_are_dropped_where_they_say_least_of_their_layer() -> None:
    model: Any = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40))
    with torch.no_grad():
        model[0].weight.copy_(torch.diag(torch.tensor([9.0] * 4 + [0.1] * 36)))
        model[1].weight.copy_(torch.eye(40) * 0.01)  # small, but all its values say as much

    made: Any = factorize(model, 0.7)

    assert isinstance(made[0], nn.Sequential)
    assert isinstance(made[1], nn.Linear)


def test_the_model_and_the_random_state_stay_as_they_were() -> None:
    model = network().eval()
    model[3].train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    made: Any = factorize(model)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == [False] * 4 + [True] + [False] * 2
    assert torch.equal(torch.get_rng_state(), state)
    assert not {*made.parameters()} & {*model.parameters()}


def test_modes_dtypes_and_frozen_parameters_are_those_of_the_layer() -> None:
    model: Any = nn.Sequential(nn.Linear(32, 32).eval(), nn.Linear(32, 32)).to(torch.bfloat16)
    model[0].requires_grad_(False)

    made: Any = factorize(model)

    assert [made[0][0].training, made[1][0].training] == [False, True]
    assert {parameter.dtype for parameter in made.parameters()} == {torch.bfloat16}
    assert [parameter.requires_grad for parameter in made.parameters()] == [False] * 3 + [True] * 3


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(50, 32), nn.Linear(32, 32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.body(self.words(words)))  # type: ignore[no-any-return]


def test_a_weight_that_two_modules_share_stays() -> None:
    made: Any = factorize(Tied(), rank=4)

    assert made.head.weight is made.words.weight
    assert isinstance(made.body, nn.Sequential)


def test_a_layer_that_stands_at_two_places_stays() -> None:
    layer = nn.Linear(32, 32)
    made: Any = factorize(nn.Sequential(layer, nn.Linear(32, 32), layer), rank=4)

    assert made[0] is made[2]
    assert [type(one) for one in made] == [nn.Linear, nn.Sequential, nn.Linear]


def test_layers_whose_weights_a_module_of_pytorch_reads_stay() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 1)
    made: Any = factorize(nn.Sequential(encoder, nn.Linear(32, 32)), rank=4).eval()

    assert made(torch.ones(1, 3, 32)).shape == (1, 3, 32)  # in eval mode the encoder reads weights past its layers
    assert isinstance(made[1], nn.Sequential)


def test_a_layer_with_a_hook_stays() -> None:
    model: Any = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    model[0].register_forward_hook(lambda *args: None)

    made: Any = factorize(model, rank=4)

    assert isinstance(made[0], nn.Linear)


def test_its_weights_are_loaded_into_a_model_with_others() -> None:
    made, inputs = factorize(network(), 0.4), torch.randn(5, 4, 8, 8)
    new = network().apply(lambda module: module.reset_parameters() if hasattr(module, "reset_parameters") else None)

    loaded = load_factorized(new, made.state_dict())

    assert torch.equal(loaded(inputs), made(inputs))
    alone: Any = load_factorized(nn.Linear(32, 32), factorize(nn.Linear(32, 32)).state_dict())
    assert alone[0].bias is None


def test_a_model_without_a_layer_to_split_is_refused() -> None:
    assert (
        refusal(lambda: factorize(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), rank=1))
        == "factorize finds no layer in the model (Sequential) that two would be smaller than\n  leave low rank out"
    )
    with pytest.raises(InputError, match="finds no layer in the model"):
        factorize(nn.ReLU())


def test_a_share_that_cannot_be_reached_is_refused_with_the_least_that_can() -> None:
    model: Any = nn.Sequential(nn.Embedding(100, 10), nn.Linear(10, 10, bias=False))
    assert refusal(lambda: factorize(model, 0.5)) == (
        "factorize cannot leave 0.5 of 1,100 parameters: at rank 1, 1,020 of them are left\n"
        "  give a share of at least 0.93"
    )
    assert count(factorize(model, 0.93)) == 1020


def test_a_model_of_which_nearly_all_cannot_be_split_is_not_told_a_share_that_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(1000, 64), nn.TransformerEncoderLayer(64, 2, 64), nn.Linear(64, 10))
    assert (
        refusal(lambda: factorize(model, 0.5))
        == "factorize cannot leave 0.5 of 89,866 parameters: at rank 1, 89,300 of them are left\n  leave low rank out"
    )


@pytest.mark.parametrize("share", [0, 1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="share must be a number above 0 and below 1"):
        factorize(network(), share)


def test_a_layer_of_zeros_gives_its_parameters_first() -> None:
    model: Any = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    nn.init.zeros_(model[1].weight)
    made: Any = factorize(model, 0.56)

    assert count(made[1]) == 32 + 32 + 32  # a rank of 1, and the bias
    assert isinstance(made[0], nn.Linear)


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def test_a_subclass_which_may_compute_otherwise_stays() -> None:
    made: Any = factorize(nn.Sequential(Doubled(32, 32), nn.Linear(32, 32)), rank=4)

    assert [type(one) for one in made] == [Doubled, nn.Sequential]


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_weight_that_is_not_finite_is_refused_by_the_name_of_its_layer(wrong: float) -> None:
    model = network()
    with torch.no_grad():
        model[5].weight[0, 0] = wrong

    assert refusal(lambda: factorize(model)) == (
        "factorize: the weight of layer '5' has numbers that are nan or infinite\n"
        "  load the weights of a training that has not failed"
    )
