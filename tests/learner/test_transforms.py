"""Functions of a column, and the augmentation: training batches alone are changed, by torch's random numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.learner.files import dataset, learner_of, right
from train_manager import Extension, InputError
from train_manager.learner import create_dataloader, eval_model
from train_manager.learner.transforms import Augment, Standardize, noise, shift


def moved(values: torch.Tensor, *steps: int) -> torch.Tensor:
    """Move an image by hand, with zeros at the border."""
    found = torch.zeros_like(values)
    height, width = values.shape[-2:]
    down, right = steps
    found[..., max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = values[
        ..., max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
    ]
    return found


def test_each_image_is_moved_by_at_most_so_many_pixels_with_all_its_channels() -> None:
    torch.manual_seed(0)
    images = torch.rand(200, 2, 5, 6) + 1
    steps = set()
    for before, after in zip(images, shift(images, pixels=1), strict=True):
        (step,) = [(d, r) for d in (-1, 0, 1) for r in (-1, 0, 1) if moved(before, d, r).equal(after)]
        steps.add(step)

    assert len(steps) == 9


@pytest.mark.parametrize("shape", [(50, 8), (50, 3, 8)])
def test_series_are_moved_along_their_last_axis_alone(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows = torch.arange(1.0, 9.0).expand(shape)
    found = shift(rows, pixels=2)
    padded = torch.nn.functional.pad(torch.arange(1.0, 9.0), (2, 2))
    allowed = {tuple(padded[start : start + 8].tolist()) for start in range(5)}

    assert {tuple(row.tolist()) for row in found.flatten(0, -2)} == allowed
    if len(shape) == 3:
        assert (found == found[:, :1]).all()


def test_the_random_state_of_torch_determines_shift_and_noise() -> None:
    images = torch.rand(20, 1, 4, 4)
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append((shift(images, 1), noise(images, 0.1)))

    assert all(one.equal(other) for one, other in zip(*found, strict=True))


def test_noise_has_its_standard_deviation() -> None:
    torch.manual_seed(0)

    assert float(noise(torch.zeros(10_000), std=0.3).std()) == pytest.approx(0.3, rel=0.05)


def test_noise_refuses_whole_numbers() -> None:
    with pytest.raises(InputError, match=r"^noise takes floating point numbers, but was given torch\.int64$"):
        noise(torch.zeros(3, dtype=torch.long), std=0.1)


def test_each_place_is_standardized_by_itself() -> None:
    standardize = Standardize(each=True)
    standardize.fit(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))

    assert standardize(torch.tensor([[1.0, 40.0]])).tolist() == [[0.0, 2.0]]


def test_a_place_that_never_changes_becomes_zero() -> None:
    standardize = Standardize(each=True)
    standardize.fit(torch.tensor([[5.0, 0.0], [5.0, 2.0]]))

    assert standardize(torch.tensor([[5.0, 1.0]])).tolist() == [[0.0, 0.0]]


# ---- augmentation ----


def test_whole_numbers_are_standardized() -> None:
    standardize = Standardize()
    standardize.fit(torch.tensor([[1], [3]]))

    assert standardize(torch.tensor([[4]])).tolist() == [[2.0]]


NOISE = {"use": "noise", "std": 0.1}


def test_only_the_column_that_is_named_is_changed() -> None:
    augment = Augment([{"use": "divide", "by": 2.0, "of": "right"}], ["left", "right"])
    given = {"left": torch.tensor([4.0]), "right": torch.tensor([4.0])}

    assert {name: column.item() for name, column in augment.views(given).items()} == {"left": 4.0, "right": 2.0}
    assert given["right"].item() == 4.0


def test_a_column_that_a_batch_does_not_have_is_left_out() -> None:
    augment = Augment([{**NOISE, "of": "right"}], ["left", "right"])
    given = {"left": torch.tensor([4.0])}

    assert augment.views(given) == given


def test_of_several_columns_one_must_be_named() -> None:
    with pytest.raises(InputError, match=r'augment\[0\] lacks of = "...", one of the inputs left and right'):
        Augment([NOISE], ["left", "right"])


def test_training_batches_are_changed_and_the_data_and_evaluations_are_not() -> None:
    seen: list[torch.Tensor] = []

    def keep(inputs: torch.Tensor) -> None:
        seen.append(inputs)

    learner = learner_of(dataset(augment=[{"use": "divide", "by": 1000.0}]))
    data: Any = create_dataloader(dataset(augment=[{"use": "divide", "by": 1000.0}]))
    learner.tm.add_extension(Extension.of(post_train_step_batch=keep))
    learner.train_epoch()
    model: Any = learner.tm.model
    result = eval_model(data, model, [right])["test"]

    assert max(float(inputs.abs().max()) for inputs in seen) < 0.1
    assert float(result.inputs.abs().max()) > 1
    assert float(data.train_data.all()["inputs"].abs().max()) > 1


def test_two_datasets_that_change_a_column_differently_are_refused() -> None:
    table = dataset()["dataset"]["spots"]
    with pytest.raises(InputError, match=r"dataset\.other\.augment changes point otherwise than dataset\.one does"):
        create_dataloader({"dataset": {"one": table, "other": {**table, "augment": [{**NOISE, "std": 0.2}]}}})
