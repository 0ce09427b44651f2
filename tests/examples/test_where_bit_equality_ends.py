"""Loops that draw random numbers in their evaluations equal the manager before the first one, or with a fork."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.comparison import Trained, are_equal, assert_equal, by_hand, by_manager, fork_evaluation

NEEDS = {"vae": "sklearn", "contrastive": "sklearn", "seq2seq": "torch", "dict_batches": "transformers"}


@pytest.fixture(params=NEEDS)
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(NEEDS[request.param])
    return str(request.param)


@pytest.fixture
def example(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


@pytest.fixture
def twin(name: str) -> Any:
    return importlib.import_module(f"tests.examples.twins.{name}")


@pytest.fixture
def train_both(example: Any, twin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return a function that trains two short epochs by the manager and by the loop, in this order."""
    for module in (example, twin):
        monkeypatch.setattr(module, "EPOCHS", 2)
    if hasattr(example, "EXAMPLES"):
        monkeypatch.setattr(example, "EXAMPLES", 1000)
    given = (tmp_path,) if example.__name__.endswith("vae") else ()

    def train() -> tuple[Trained, Trained]:
        return by_manager(lambda: example.manager(*given)), by_hand(lambda record: twin.train(record, *given))

    return train


def test_a_loop_that_draws_in_its_evaluation_has_the_same_losses_only_before_it(train_both: Callable[[], Any]) -> None:
    one, other = train_both()
    epoch = len(one.losses) // 2

    assert torch.equal(torch.stack(one.losses[:epoch]), torch.stack(other.losses[:epoch]))
    assert not torch.equal(torch.stack(one.losses[epoch:]), torch.stack(other.losses[epoch:]))
    assert not are_equal(one, other)


def test_with_a_fork_around_its_evaluation_it_is_equal_to_the_end(
    train_both: Callable[[], Any], twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_evaluation(twin, monkeypatch)

    assert_equal(*train_both())
