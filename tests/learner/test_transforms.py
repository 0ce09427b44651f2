"""Functions of a column that a file may name."""

from __future__ import annotations

import pytest
import torch

from train_manager import InputError
from train_manager.learner.transforms import Standardize, noise, shift


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


def test_no_pixels_move_nothing() -> None:
    images = torch.rand(3, 1, 4, 4)

    assert shift(images, pixels=0).equal(images)


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


def test_a_column_that_never_changes_becomes_zero() -> None:
    standardize = Standardize()
    standardize.fit(torch.full((4, 2), 5.0))

    assert standardize(torch.full((1, 2), 5.0)).tolist() == [[0.0, 0.0]]


def test_whole_numbers_are_standardized() -> None:
    standardize = Standardize()
    standardize.fit(torch.tensor([[1], [3]]))

    assert standardize(torch.tensor([[4]])).tolist() == [[2.0]]
