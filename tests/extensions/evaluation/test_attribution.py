"""What a prediction rests on, by integrated gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from train_manager import InMemory, InputError, TrainManager
from train_manager.extensions import Attribution, MetricStore
from train_manager.testing import tiny_manager
from train_manager.tools import read_run


def image_manager(*extensions: Attribution | MetricStore, train_dir: Path | None = None) -> TrainManager:
    torch.manual_seed(0)
    images = InMemory(torch.rand(6, 1, 4, 4), torch.arange(6) % 3, batch_size=3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return tiny_manager(*extensions, model=model, train_data=images, eval_data={"valid": images}, train_dir=train_dir)


def test_shares_add_up_to_the_difference_that_they_explain() -> None:
    attribution = Attribution(examples=5, baseline=0.25, steps=200)
    tm = tiny_manager(attribution)
    tm.train()

    inputs = next(iter(tm.eval_data["valid"]))[0][:5]
    with torch.no_grad():
        logits, around = tm.model(inputs), tm.model(torch.full_like(inputs, 0.25))
    differences = (logits - around)[torch.arange(5), logits.argmax(1)]
    assert attribution.shares["valid"].sum(1).tolist() == pytest.approx(differences.tolist(), abs=1e-3)
    assert attribution.gaps["valid"].abs().max() < 1e-3


def test_a_linear_model_has_its_weights_times_the_inputs() -> None:
    attribution, model = Attribution(examples=3), nn.Linear(2, 2)
    tm = tiny_manager(attribution, model=model)
    tm.eval()

    inputs = next(iter(tm.eval_data["valid"]))[0][:3]
    said = model(inputs).argmax(1)
    assert torch.allclose(attribution.shares["valid"], inputs * model.weight[said], atol=1e-5)


def test_images_are_a_picture_and_other_inputs_an_array(tmp_path: Path) -> None:
    tiny_manager(Attribution(), MetricStore(), train_dir=tmp_path / "flat").train()
    image_manager(Attribution(), MetricStore(), train_dir=tmp_path / "images").train()

    assert [series.name for series in read_run(tmp_path / "flat").metrics.arrays()] == ["attribution/valid"]
    assert list((tmp_path / "images" / "plots").glob("*.png"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            [(torch.ones(4, 2).long(), torch.zeros(4).long())],
            "inputs that are a tensor of floats, but they are torch.int64",
        ),
        ([([torch.ones(4, 2)], torch.zeros(4).long())], "inputs that are a tensor of floats, but they are list"),
    ],
)
def test_inputs_that_are_no_numbers_are_refused(data: object, what: str) -> None:
    class Anything(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs: object) -> torch.Tensor:
            output: torch.Tensor = self.layer(torch.ones(4, 2))
            return output

    tm = tiny_manager(Attribution(), model=Anything(), eval_data={"valid": data})
    with pytest.raises(InputError) as caught:
        tm.eval()

    assert str(caught.value) == (
        f"Attribution needs {what}\n  leave Attribution out, or call captum with a function of your model's inputs"
    )


@pytest.mark.parametrize(("examples", "explained"), [(2, 2), (5, 5), (8, 6)])
def test_the_first_examples_are_explained_over_several_batches(examples: int, explained: int) -> None:
    attribution, one_batch = Attribution(examples), Attribution(examples)
    for extension, size in ((attribution, 3), (one_batch, 6)):
        tm = image_manager(extension)
        inputs, targets = (torch.cat(parts) for parts in zip(*tm.eval_data["valid"], strict=True))
        tm.eval_data = {"valid": InMemory(inputs, targets, batch_size=size)}
        tm.eval()
        tm.eval()  # each evaluation explains them anew

    assert len(attribution.shares["valid"]) == len(attribution.gaps["valid"]) == explained
    assert torch.allclose(attribution.shares["valid"], one_batch.shares["valid"], atol=1e-6)
