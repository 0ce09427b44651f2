"""Models of other people, asked for batch leaks; `make real-models` installs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.checks.models.real import ARCHITECTURES, CONTRASTIVE, SCRIPTED, WITH_WEIGHTS, Real
from train_manager.checks import check_batch_leak
from train_manager.telling.findings import Findings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")]
EVERY = WITH_WEIGHTS | ARCHITECTURES
HAVE_NORMS_OVER_THE_BATCH = ("pitch", "ResNet")
TOWERS = ("text", "image")


class Rolled(nn.Module):
    """Gives each example the input of the one before it."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inside(*map(_rolled, args), **{name: _rolled(one) for name, one in kwargs.items()})


def _rolled(value: Any) -> Any:
    return value.roll(1, 0) if isinstance(value, Tensor) else value


def looked_at(real: Real, mode: str, *, is_rolled: bool = False) -> Findings:
    torch.manual_seed(0)
    model = Rolled(real.make()) if is_rolled else real.make()
    return check_batch_leak(model.train(mode == "train"), real.batch())


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", EVERY)
def test_a_real_model_has_no_batch_leak_and_norms_over_the_batch_are_a_note(name: str, mode: str) -> None:
    found = looked_at(EVERY[name], mode)

    assert [one.level for one in found] == ["note"] * (mode == "train" and name in HAVE_NORMS_OVER_THE_BATCH)
    assert [one.could_look for one in found.covered] == [True]
    _, _, rest = found.covered[0].text.partition(f"changes ran, {mode} mode")
    assert rest in ("", "; not judged: loss, of no example", "; not judged: aux_loss, of no example")


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", EVERY)
def test_a_real_model_that_rolls_its_input_is_found(name: str, mode: str) -> None:
    found = looked_at(EVERY[name], mode, is_rolled=True)
    errors = [one for one in found if one.level == "error"]

    assert [(one.where, one.numbers["way"]) for one in errors] == [("the model itself (Rolled)", "forward")]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_scripted_model_that_keeps_a_state_is_judged_by_its_gradients(mode: str) -> None:
    clean, rolled = looked_at(SCRIPTED, mode), looked_at(SCRIPTED, mode, is_rolled=True)

    assert clean.is_clean
    assert "two runs of the same batch differ, so that only their gradients were judged" in clean.covered[0].text
    assert [(one.where, one.numbers["way"]) for one in rolled] == [("the model itself (Rolled)", "backward")]


def test_a_model_that_compares_all_pairs_of_examples_is_found_by_what_it_compares_and_clean_without_it() -> None:
    torch.manual_seed(0)
    model, batch = CONTRASTIVE.make(), CONTRASTIVE.batch()

    found = check_batch_leak(model, batch)
    apart = check_batch_leak(model, batch, call=lambda model, batch: [model(**batch)[f"{of}_embeds"] for of in TOWERS])

    assert [(one.level, one.where) for one in found] == [("error", "the model itself (CLIPModel)")]
    assert apart.is_clean
