"""What a data file says: features, fitted on training rows alone, or made by a module with weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.learner.files import dataset
from tests.support.refusals import refusal
from train_manager import recorded
from train_manager.learner import create_dataloader
from train_manager.learner.datasets import split_rows


@recorded
class Widened(nn.Module):
    """A small pretrained module: a layer, and what changes in train mode."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the wider rows."""
        wide: Tensor = self.drop(self.layer(rows))
        return wide


@recorded
def outlying(number: int, rows: list[int]) -> dict[str, Tensor]:
    """Random points, of which some rows are a thousand times as large."""
    point = torch.randn(number, 4, generator=torch.Generator().manual_seed(0))
    point[rows] *= 1000
    return {"point": point, "label": torch.arange(number) % 3}


def inputs(**more: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs of the training rows, and of those of the test, in their order."""
    data: Any = create_dataloader(dataset(augment=[], **more))
    return data.unlabelled().all()["inputs"], data.eval_data["test"].all()["inputs"]


def test_a_function_is_called_with_the_column() -> None:
    plain, _ = inputs()
    divided, _ = inputs(features=[{"use": "divide", "by": 4.0}])

    assert divided.equal(plain / 4)


def test_the_training_rows_have_mean_zero_and_deviation_one() -> None:
    train, test = inputs(features=[{"use": "Standardize"}])

    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    assert float(train.std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert abs(float(test.mean())) > 1e-4


@pytest.mark.parametrize("each", [False, True])
def test_rows_of_the_test_do_not_move_what_is_fitted(each: bool) -> None:
    test_rows = split_rows(torch.arange(60) % 3, 60, {"train": 0.8, "test": 0.2}, 0)["test"].tolist()
    features = [{"use": "Standardize", "each": each}]
    train, test = inputs(use="outlying", rows=[], features=features)
    same, far = inputs(use="outlying", rows=test_rows, features=features)

    assert same.equal(train)
    assert float(far.abs().max()) > 100 * float(test.abs().max())


def test_a_pretrained_module_gives_its_features_in_eval_mode(tmp_path: Path) -> None:
    module = Widened()
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    plain, _ = inputs()
    found, test = inputs(features=[{"use": "Widened", "weights": str(tmp_path / "weights.pt")}])
    with torch.no_grad():
        expected = module.eval()(plain)

    assert (found.equal(expected), found.requires_grad, test.shape) == (True, False, (12, 6))


def test_the_path_of_weights_is_relative_to_the_file(tmp_path: Path) -> None:
    torch.save(Widened().state_dict(), tmp_path / "weights.pt")
    text = """\
[dataset.spots]
use = "spots"
number = 60
inputs = "point"
split = { train = 0.8, test = 0.2 }
features = [{ use = "Widened", weights = "weights.pt" }]
"""
    (tmp_path / "data.toml").write_text(text)
    data: Any = create_dataloader(tmp_path / "data.toml")

    assert data.unlabelled().all()["inputs"].shape == (48, 6)


def test_weights_that_do_not_fit_are_named_with_the_place_in_the_file(tmp_path: Path) -> None:
    torch.save(Widened().state_dict(), tmp_path / "weights.pt")
    found = refusal(lambda: inputs(features=[{"use": "Widened", "width": 7, "weights": str(tmp_path / "weights.pt")}]))

    assert found.startswith("the dict: dataset.spots.features[0]: Widened raised RuntimeError: ")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"use": "Widened"}, '[0] lacks weights = "...", the file with the weights of Widened'),
        ({"use": "Widened", "weights": "none.pt"}, "[0].weights is the text 'none.pt', which is not a file"),
        ({"use": "divide", "by": 2.0, "weights": "none.pt"}, "[0].weights is given, but divide is not a module"),
        ({"use": "divide", "by": 2.0, "of": "pont"}, "[0].of names 'pont', which is not one of the inputs"),
    ],
)
def test_a_mistake_in_a_feature_is_named(table: dict[str, Any], told: str) -> None:
    assert f"dataset.spots.features{told}" in refusal(lambda: inputs(features=[table]))
