"""Confusion matrices of evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from train_manager import Extension, InputError
from train_manager.extensions import ConfusionMatrix, MetricStore, PredictionGallery
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


def test_each_evaluation_counts_anew() -> None:
    confusion = ConfusionMatrix()
    tiny_manager(confusion, epochs=3).train()

    assert sum(map(sum, confusion.matrices["valid"])) == 32


def test_an_evaluation_that_fails_leaves_nothing_to_the_next_one() -> None:
    class Fails(Extension):
        count = 0

        def post_eval_step_batch(self) -> None:
            self.count += 1
            if self.count == 1:
                raise RuntimeError("broken")

    confusion = ConfusionMatrix()
    tm = tiny_manager(confusion, Fails())
    with pytest.raises(RuntimeError):
        tm.eval()
    tm.eval()

    assert sum(map(sum, confusion.matrices["valid"])) == 32


def test_each_set_has_a_matrix() -> None:
    tm = tiny_manager(confusion := ConfusionMatrix())
    tm.eval({"small": [(torch.rand(3, 2), torch.tensor([0, 1, 1]))]})
    tm.eval()

    assert {name: sum(map(sum, matrix)) for name, matrix in confusion.matrices.items()} == {"small": 3, "valid": 32}


@pytest.mark.parametrize("extension", [ConfusionMatrix, PredictionGallery])
@pytest.mark.parametrize("names", ["cat", None, 3])
def test_names_that_are_no_list_are_refused(extension: Any, names: Any) -> None:
    with pytest.raises(InputError) as error:
        extension(names)

    assert str(error.value) == (
        f"names must be a list of names, but is {names!r}\n"
        f"  give a list with a name for each class, or leave it out: {extension.__name__}()"
    )


@pytest.mark.parametrize("extension", [ConfusionMatrix, PredictionGallery])
def test_too_few_names_are_refused_at_the_first_batch(extension: Any) -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(extension(["below"])).eval()

    told = f"{extension.__name__} was given 1 name, but predictions are of 2 classes"
    assert str(error.value).startswith(f"{told}\n  give a name for each class, or none")


def test_the_store_has_each_evaluation_with_its_labels(tmp_path: Path) -> None:
    confusion = ConfusionMatrix(["below", "above"])
    tiny_manager(confusion, MetricStore(), epochs=2, train_dir=tmp_path).train()

    ((series, rows),) = MetricReader(tmp_path).arrays().items()
    assert (series.name, rows[-1].labels, rows[-1].shape) == ("confusion/valid", ("below", "above"), (2, 2))
    assert [row.step for row in rows] == [0, 3, 6]
    assert list(rows[-1].values) == [count for row in confusion.matrices["valid"] for count in row]
