"""The tensors that checkpoints leave out, by their hashes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from train_manager.checkpoints import base as base_file
from train_manager.checkpoints.base import Base, facts_of, refuse_another
from train_manager.checkpoints.hashed_file import hash_of_content
from train_manager.errors import CheckpointError

NAMES = ["0.weight", "0.bias", "1.running_mean"]
MAKE = "torch.manual_seed(0); model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))"


def made(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def digests(model: nn.Module) -> dict[str, str]:
    return Base(model).unchanged(NAMES, model)


def test_models_with_the_same_weights_have_one_base_compiled_or_not() -> None:
    compiled = nn.ModuleDict({"_orig_mod": made()})  # as torch.compile wraps it

    assert digests(made()) == digests(made()) == digests(compiled)


@pytest.mark.whole
def test_so_do_those_of_another_process() -> None:
    ask = (
        f"from train_manager.checkpoints.base import *; {MAKE}; print(facts_of(Base(model).unchanged({NAMES}, model)))"
    )
    told = subprocess.run([sys.executable, "-c", f"import torch\n{ask}"], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == str(facts_of(digests(made())))


CHANGES: dict[str, Callable[[Any], object]] = {
    "a value": lambda model: model[0].weight.data.reshape(-1)[3].mul_(1.001),
    "the precision": lambda model: model[0].half(),
    "the shape": lambda model: setattr(model[0], "weight", nn.Parameter(model[0].weight.detach().reshape(2, 3))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_tensor_has_another_digest(change: Callable[[Any], object]) -> None:
    change(other := made())

    assert digests(other)["0.weight"] != digests(made())["0.weight"]


def test_a_tensor_that_is_written_to_is_no_longer_of_the_base() -> None:
    base = Base(model := made())
    model(torch.ones(4, 2))  # moves the running mean

    assert [*base.unchanged(NAMES, model)] == ["0.weight", "0.bias"]


def test_one_that_gets_its_own_values_again_is() -> None:
    base = Base(model := made())
    before = base.unchanged(NAMES, model)
    model.load_state_dict(made().state_dict())

    assert base.unchanged(NAMES, model) == before


def test_each_parameter_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = list[str]()

    def counted(content: Any) -> str:
        hashed.append(hash_of_content(content))
        return hashed[-1]

    monkeypatch.setattr(base_file, "hash_of_content", counted)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    base = Base(model)
    for _ in range(3):
        base.unchanged([*model.state_dict()], model)

    assert len(hashed) == 4


def test_another_base_is_refused_by_the_first_tensor_that_differs() -> None:
    saved = digests(made())
    other = made()
    nn.init.zeros_(other[0].bias)
    with pytest.raises(CheckpointError) as refused:
        refuse_another("step-000000000003", saved, Base(other), other)

    assert str(refused.value) == (
        "step-000000000003 is of another base (sha256 {}) than this model ({}): 1 of the 3 tensors that it leaves out "
        "differ, the first is 0.bias\n"
        "  make the model with the weights that it had; strict=False resumes with those of this model"
    ).format(*((facts_of(one) or {})["sha256"][:8] for one in (saved, digests(other))))
