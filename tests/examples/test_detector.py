"""The example ``examples/detector.py``: lists of images and targets, a dict of losses, evaluations without a loss."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import detector as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import detector as twin
from tests.support.training import Values
from train_manager import TrainManager, diagnose
from train_manager.extensions import Checkpoints


def detection(epochs: int, **options: Any) -> TrainManager:
    """A training on few images."""
    torch.manual_seed(0)
    tm = example.manager()
    batches = [*islice(tm.train_data or (), 3)]
    given = {"model": tm.model, "optimizer": tm.optimizer, "train_data": batches, "epochs": epochs}
    return example.Detection(**{**given, **options})


def test_it_equals_the_loop_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (example, twin):
        monkeypatch.setattr(module, "EPOCHS", 1)

    assert_equal(by_manager(example.manager), by_hand(twin.train))


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


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("detector") <= lines_of_twin("detector")


@pytest.mark.slow
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


def test_it_resumes_to_the_same_weights(tmp_path: Path) -> None:
    def program(folder: str, epochs: int) -> TrainManager:
        tm = detection(epochs, train_dir=tmp_path / folder, extensions=[Checkpoints(resume=True)])
        tm.train()
        return tm

    whole = program("whole", 2)
    program("resumed", 1)
    resumed = program("resumed", 2)

    weights = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


def test_diagnose_leaves_it_as_it_was() -> None:
    tm = detection(1)
    before = [one.clone() for one in tm.model.parameters()]
    diagnose(tm, quiet=True)

    assert all(torch.equal(one, other) for one, other in zip(before, tm.model.parameters(), strict=True))


def test_the_program_says_how_many_squares_are_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].endswith(" of the squares")
