"""The example ``examples/gan.py``: two models and two optimizers, and training recipes that are one line each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

pytest.importorskip("sklearn")

from examples import gan as example
from tests.examples.comparison import (
    Trained,
    are_equal,
    assert_equal,
    by_hand,
    by_manager,
)
from tests.examples.twins import gan, gan_with_recipes
from train_manager import Extension, priority
from train_manager.extensions import Accumulate, ClipGradients, MixedPrecision


class Norms(Extension):
    """The norms of the gradients as each optimizer sees them."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = defaultdict(list)

    @priority(20)
    def pre_train_optimizer_step(self, optimizer: Optimizer, optimizer_name: str) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        self.seen[optimizer_name].append(torch.nn.utils.get_total_norm(gradients).item())


def trained(*extensions: Extension) -> Trained:
    return by_manager(lambda: example.manager(*extensions), "discriminator", "generator")


@pytest.fixture(scope="module")
def plain() -> Trained:
    return trained()


@pytest.fixture(autouse=True, scope="module")
def one_epoch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (example, gan, gan_with_recipes):
            patch.setattr(module, "EPOCHS", 1)
        yield


def test_it_trains_and_prints_as_the_loop_by_hand_does(plain: Trained) -> None:
    assert_equal(plain, by_hand(gan.train))


def test_each_optimizer_is_clipped_to_a_limit_of_its_own() -> None:
    norms = Norms()
    trained(ClipGradients(0.1, optimizer="discriminator"), ClipGradients(0.5, optimizer="generator"), norms)

    assert {name: round(max(seen), 4) for name, seen in norms.seen.items()} == {"discriminator": 0.1, "generator": 0.5}


RECIPES: dict[str, tuple[list[Extension], dict[str, Any]]] = {
    "accumulated": ([Accumulate(4)], {"accumulated": 4}),
    "bfloat16": ([MixedPrecision()], {"bfloat16": True}),
    "both": ([Accumulate(4), MixedPrecision()], {"accumulated": 4, "bfloat16": True}),
    "a last window that is shorter": ([Accumulate(8)], {"accumulated": 8}),
}


@pytest.mark.parametrize(
    "name",
    ["accumulated", "bfloat16", *(pytest.param(name, marks=pytest.mark.whole) for name in [*RECIPES][2:])],
)
def test_a_practice_of_one_line_trains_as_the_loop_by_hand_does(name: str, plain: Trained) -> None:
    extensions, options = RECIPES[name]
    found = trained(*extensions)

    assert not are_equal(found, plain)
    assert_equal(found._replace(lines=[]), by_hand(lambda record: gan_with_recipes.train(record, **options)))
