from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager.checks.replay import (
    Why,
    backward_places,
    broken_weights,
    is_broken,
    watched,
)

NAN, INF = torch.nan, torch.inf


class Does(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def place_of(model: nn.Module, *inputs: Any) -> str | None:
    with watched({"": model}) as calls:
        model(*inputs)
    return calls.places[0].where if calls.places else None


# ---- forward ---------------------------------------------------------------------------------------------------------

BREAK = {
    "log of 0": lambda x: (x - x).log(),
    "division": lambda x: x / (x - x),
    "overflow of exp": lambda x: (x + 1000).exp(),
    "root of what is below 0": lambda x: (x - 10).sqrt(),
    "float16": lambda x: x.half() * 60000 * 10,
    "a row of which all is hidden": lambda x: x.masked_fill(x < INF, -INF).softmax(1),
    "in place": lambda x: x.clone().sub_(x).log_(),
}


@pytest.mark.parametrize("function", BREAK.values(), ids=BREAK)
def test_the_first_module_that_breaks_finite_numbers_is_named(function: Callable[[Tensor], Tensor]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Does(function), nn.Identity(), nn.Identity())

    assert place_of(model, torch.ones(3, 4)) == "module '1' (Does)"


def test_the_innermost_module_is_named() -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Identity(), nn.Sequential(Does(torch.log))))

    assert place_of(model, torch.zeros(2)) == "module '1.1.0' (Does)"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_scripted_modules_take_no_hooks_and_what_stands_beside_them_is_named() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 2)), Does(lambda x: x - x), Does(torch.log))

    assert place_of(model, torch.ones(1, 2)) == "module '2' (Does)"


def test_code_between_two_modules_is_told_as_that_of_the_module_around_them() -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.last(x / (x - x))  # type: ignore[no-any-return]

    assert place_of(nn.Sequential(Between()), torch.ones(1, 2)) == "module '0' (Between)"


def test_a_module_that_is_used_twice_is_named_for_the_call_that_breaks() -> None:
    minus_one = Does(lambda x: (x - 1).log() + 5)
    model = nn.Sequential(minus_one, minus_one)

    assert place_of(model, torch.tensor([2.0])) is None
    with watched({"": model}) as calls:
        model(torch.tensor([1.0]))
    assert calls.places[0] == Why(
        "module '0' (Does) made it of finite numbers: of 1 number 1 is infinite",
        "module '0' (Does)",
        "look at its logarithms, roots, powers and divisions; float16 ends at 65,504: take torch.bfloat16",
    )


def test_a_layer_whose_weights_have_grown_too_large_is_told_with_the_learning_rate() -> None:
    model = nn.Linear(2, 2)
    model.weight.data.fill_(1e38)
    with watched({"": model}) as calls:
        model(torch.full((1, 2), 9.0))

    assert calls.places[0].cure == (
        "its inputs or weights are above 1e15: try a smaller learning rate, or ClipGradients"
    )


def test_minus_infinity_in_a_mask_is_not_broken() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask, self.attend = Does(lambda x: torch.full_like(x, -INF).triu(1)), Does(self.attended)

        @staticmethod
        def attended(x: Tensor, mask: Tensor) -> Tensor:
            return (x + mask).softmax(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.attend(x, mask=self.mask(x))  # type: ignore[no-any-return]

    assert place_of(nn.Sequential(Attention(), Does(torch.log)), torch.zeros(3, 3)) == "module '1' (Does)"


def test_attention_with_a_row_that_is_hidden_is_named_although_its_mask_is_infinite() -> None:
    class Attention(nn.MultiheadAttention):
        def forward(self, x: Tensor, *, attn_mask: Tensor) -> Any:  # type: ignore[override]
            return super().forward(x, x, x, attn_mask=attn_mask)

    with watched({"": (model := Attention(4, 1, batch_first=True))}) as calls:
        model(torch.ones(1, 2, 4), attn_mask=torch.full((2, 2), -INF))

    assert [why.where for why in calls.places] == ["the model itself (Attention)"]


def test_a_module_is_not_to_blame_for_what_it_is_given() -> None:
    assert place_of(nn.Sequential(nn.Linear(2, 2)), torch.full((1, 2), NAN)) is None


def test_functions_that_map_over_examples_inside_of_a_module_are_told_as_that_module() -> None:
    model = nn.Sequential(Does(torch.vmap(torch.square)), Does(torch.vmap(torch.log)), nn.Identity())

    assert place_of(model, torch.zeros(3, 2)) == "module '1' (Does)"


# ---- backward --------------------------------------------------------------------------------------------------------


def backward_place_of(model: nn.Module, inputs: Tensor) -> Why | None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False), watched({"": model}) as calls:
        found = backward_places(model(inputs).sum(), calls)
    return found[0] if found else None


ROOT = {
    "sqrt": (lambda x: (x * 0).sqrt(), "SqrtBackward0"),
    "norm": (lambda x: ((x * 0).square().sum(1)).pow(0.5), "PowBackward0"),
    "where": (lambda x: torch.where(x > 99, (x * 0).log(), x), "LogBackward0"),
}


@pytest.mark.parametrize(("function", "node"), ROOT.values(), ids=ROOT)
def test_the_module_whose_backward_breaks_is_named_with_the_line_of_its_forward(
    function: Callable[[Tensor], Tensor], node: str
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Does(function)), nn.Identity())
    found = backward_place_of(model, torch.ones(3, 2))

    assert found is not None
    assert found.what.startswith(f"{node} in module '1.0' (Does) made it of finite numbers: ")
    assert found.where.startswith("module '1.0' (Does), tests/checks/test_replay.py:")


def test_a_custom_backward_is_named() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient / 0

    model = nn.Sequential(nn.Linear(2, 2), Does(Broken.apply))
    found = backward_place_of(model, torch.ones(1, 2))

    assert found is not None
    assert found.what.startswith("BrokenBackward in module '1' (Does) made it")


def test_a_hook_of_a_tensor_that_breaks_a_gradient_is_told_with_the_module_that_made_the_tensor() -> None:
    def hooked(x: Tensor) -> Tensor:
        y = 2 * x
        y.register_hook(lambda gradient: gradient * NAN)
        return y

    found = backward_place_of(nn.Sequential(nn.Linear(2, 2), Does(hooked)), torch.ones(1, 2))

    assert found is not None
    assert found.what == (
        "a hook of a tensor, or a sum of gradients, at MulBackward0 in module '1' (Does) made it of finite numbers: "
        "of 2 numbers 2 are nan"
    )
    assert found.cure == "look at what register_hook() was given"


def test_a_backward_pass_with_finite_gradients_has_no_place() -> None:
    assert backward_place_of(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(3, 2)) is None


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_integers_and_sparse_tensors_are_looked_at_without_an_error() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), [NAN], (3,), check_invariants=False)

    assert (is_broken(torch.ones(2, dtype=torch.long)), is_broken(sparse)) == (False, True)


def test_broken_parameters_and_buffers_are_named_once_and_a_mask_is_not_one() -> None:
    shared = nn.Linear(2, 2)
    nn.init.constant_(shared.weight, INF)
    model = nn.Sequential(shared, shared, norm := nn.BatchNorm1d(2))
    norm.register_buffer("mask", torch.full((2,), -INF))
    assert norm.running_mean is not None
    norm.running_mean.fill_(NAN)

    assert broken_weights({"": model}) == ["0.weight", "2.running_mean"]
