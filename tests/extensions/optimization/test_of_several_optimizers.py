"""Extensions of optimizers, alone and in pairs, with two optimizers in a ``train_batch`` of one's own."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import pytest
import torch

from tests.extensions.optimization.gan import NAMES, assert_same_weights, by_hand, extensions_for, gan_manager
from train_manager import InputError
from train_manager.extensions import (
    EMA,
    SAM,
    Accumulate,
    ClipGradients,
    CombineGradients,
    GradientNorms,
    MixedPrecision,
    WarmUp,
)
from train_manager.testing import tiny_manager

ALONE: dict[str, dict[str, Any]] = {
    "Accumulate": {"accumulate": 2},
    "bfloat16": {"dtype": torch.bfloat16},
    "float16": {"dtype": torch.float16},
    "ClipGradients of one": {"clip": ("critic",)},
    "ClipGradients": {"clip": NAMES},
    "SAM of one": {"sam": ("generator",)},
    "SAM": {"sam": NAMES},
}
PAIRS = {
    f"{one} and {other}": {**ALONE[one], **ALONE[other]}
    for one, other in combinations(ALONE, 2)
    if ALONE[one].keys() != ALONE[other].keys()
}
REFUSED = {
    name: options
    for name, options in PAIRS.items()
    if "sam" in options and ("accumulate" in options or options.get("dtype") is torch.float16)
}
WORKING = {name: options for name, options in (ALONE | PAIRS).items() if name not in REFUSED}


@pytest.mark.parametrize("options", WORKING.values(), ids=WORKING)
def test_it_equals_the_hand_written_loop_to_the_bit(options: dict[str, Any]) -> None:
    tm = gan_manager(*extensions_for(**options))
    tm.train()
    assert_same_weights(tm.model, by_hand(**options))


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_three_of_them_equal_the_hand_written_loop_in_any_order(order: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"accumulate": 2, "dtype": torch.float16, "clip": NAMES}
    extensions = extensions_for(**options)
    tm = gan_manager(*(extensions[index] for index in order))
    tm.train()
    assert_same_weights(tm.model, by_hand(**options))


@pytest.mark.parametrize("options", ALONE.values(), ids=ALONE)
def test_it_makes_a_difference(options: dict[str, Any]) -> None:
    plain, other = by_hand(), by_hand(**options)
    assert any(not value.equal(other.state_dict()[name]) for name, value in plain.state_dict().items())


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_sam_is_refused_where_the_gradients_are_not_those_of_the_batch(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        gan_manager(*extensions_for(**options)).train()
    assert str(caught.value) == (
        f"the loss of optimizer {options['sam'][0]!r} must be computed anew, but its gradients are not those of one "
        "loss\n  leave out Accumulate, CombineGradients, float16 and hooks that modify the loss"
    )


ONE_OPTIMIZER = {
    "ClipGradients": ClipGradients(1.0, optimizer="critik"),
    "EMA": EMA(optimizer="critik"),
    "MixedPrecision": MixedPrecision(optimizer="critik"),
    "SAM": SAM(optimizer="critik"),
    "WarmUp": WarmUp(2, optimizer="critik"),
}


@pytest.mark.parametrize("name", ONE_OPTIMIZER)
def test_an_optimizer_that_does_not_exist_is_refused_before_the_first_step(name: str) -> None:
    tm = gan_manager(ONE_OPTIMIZER[name])
    with pytest.raises(InputError) as caught:
        tm.train()
    assert str(caught.value) == f"{name} finds no optimizer 'critik'\n  did you mean 'critic'?"
    assert tm.step_num == 0


OF_GRADIENTS = {
    "Accumulate": Accumulate(2),
    "ClipGradients": ClipGradients(1.0),
    "CombineGradients": CombineGradients(lambda matrix: matrix.sum(0)),
    "GradientNorms": GradientNorms(),
    "SAM": SAM(),
}


@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_an_optimizer_with_a_closure_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(OF_GRADIENTS[name], optimizer=torch.optim.LBFGS).train()
    assert str(caught.value) == (
        f"{name} works on gradients before a step, but optimizer 'optimizer' (LBFGS) computes more of them in it\n"
        f"  leave {name} out, or take an optimizer without a closure, such as AdamW"
    )
