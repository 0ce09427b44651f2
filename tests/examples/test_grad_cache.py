"""The example ``examples/grad_cache.py``: its chunks train as the whole batch does."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("sklearn")

from examples import grad_cache as example
from train_manager import TrainManager


def trained(kind: type[TrainManager]) -> TrainManager:
    torch.manual_seed(0)
    tm = example.manager(kind)
    tm.train_steps(3)
    return tm


def test_in_one_chunk_it_equals_the_whole_batch_to_the_bit_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "CHUNK", example.BATCH)
    whole, cached = trained(TrainManager), trained(example.GradCache)

    for one, other in zip(whole.model.parameters(), cached.model.parameters(), strict=True):
        assert one.equal(other)


def test_in_chunks_it_comes_to_the_gradient_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda self, inputs: inputs)  # its masks depend on the chunks
    whole, cached = trained(TrainManager), trained(example.GradCache)

    for one, other in zip(whole.model.parameters(), cached.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_the_loss_that_is_shown_is_that_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Dropout, "forward", lambda self, inputs: inputs)
    whole, cached = trained(TrainManager), trained(example.GradCache)

    expected, shown = (tm.history.epochs[-1]["loss"] for tm in (whole, cached))
    assert shown == pytest.approx(expected, rel=1e-5)
