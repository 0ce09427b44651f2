"""The example ``examples/detector.py``: lists of images and targets, a dict of losses, evaluations without a loss."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from examples import detector as example
from tests.support.training import Values
from train_manager import TrainManager


def detection(epochs: int, **options: Any) -> TrainManager:
    """A training on few images."""
    torch.manual_seed(0)
    tm = example.manager()
    batches = [*islice(tm.train_data or (), 3)]
    given = {"model": tm.model, "optimizer": tm.optimizer, "train_data": batches, "epochs": epochs}
    return example.Detection(**{**given, **options})


@pytest.mark.parametrize("kind", [list, tuple])
def test_its_images_are_counted_also_in_the_tuples_of_torchvision(
    kind: type[list[Any] | tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = example.lists
    monkeypatch.setattr(example, "lists", lambda rows: tuple(map(kind, lists(rows))))
    monkeypatch.setattr(example, "EPOCHS", 1)
    tm = example.manager()
    tm.add_extension(sizes := Values("post_train_step_batch", "true_batch_size"))
    tm.train()

    assert tm.samples_seen == 96
    assert sizes.seen == [8] * 12


@pytest.mark.slow
@pytest.mark.whole
def test_it_finds_most_squares() -> None:
    torch.manual_seed(0)
    result = example.manager().train()

    assert result.metrics["test"]["found"] > 0.9


def test_its_losses_are_curves_of_their_own() -> None:
    tm = detection(1)
    tm.add_extension(named := Values("post_train_step_batch", "losses", "loss"))
    tm.train()

    assert all([*losses] == ["objectness", "box"] for losses, _ in named.seen)
    assert all(torch.equal(losses["objectness"] + losses["box"], loss) for losses, loss in named.seen)


def test_it_predicts_boxes_for_each_image() -> None:
    tm = detection(1)
    _, test = example.squares()

    assert [len(batch) for batch in tm.predict(test)] == [16, 16]
