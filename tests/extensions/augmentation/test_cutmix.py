from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import CutMix
from train_manager.testing import tiny_manager

IMAGES = torch.arange(4.0).reshape(4, 1, 1, 1).expand(4, 3, 8, 8).contiguous()  # every pixel of image i is i
TARGETS = torch.arange(4)


def mixed(seed: int, targets: Tensor = TARGETS) -> tuple[Tensor, Tensor]:
    return CutMix(num_classes=4, seed=seed).pre_train_model_forward(inputs=IMAGES, targets=targets)


@pytest.mark.parametrize("seed", range(20))
def test_targets_are_the_areas_of_the_images(seed: int) -> None:
    images, targets = mixed(seed)
    for image, target in zip(images, targets, strict=True):
        areas = torch.stack([(image == number).float().mean() for number in range(4)])
        torch.testing.assert_close(target, areas)


def test_one_box_is_pasted_in_all_channels() -> None:
    foreign = next(image != number for number, image in enumerate(mixed(3)[0]) if (image != number).any())
    rows, columns = foreign[0].any(dim=1), foreign[0].any(dim=0)
    assert foreign.equal((rows.unsqueeze(1) & columns).expand(3, 8, 8))


def test_the_given_images_are_not_changed() -> None:
    before = IMAGES.clone()
    mixed(2)
    assert IMAGES.equal(before)


def test_numbers_as_targets_are_blended_by_area() -> None:
    images, targets = mixed(2, TARGETS.float())
    torch.testing.assert_close(images.mean(dim=(1, 2, 3)), targets)


def image_manager(*extensions: Extension, **options: Any) -> TrainManager:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    return tiny_manager(*extensions, model=net, train_data=[(IMAGES, TARGETS)] * 3, eval_data=None, **options)


def test_a_probability_of_0_mixes_nothing() -> None:
    cutmix = CutMix(num_classes=4, probability=0)
    assert cutmix.pre_train_model_forward(inputs=IMAGES, targets=TARGETS)[0] is IMAGES


def test_the_global_random_state_is_not_changed() -> None:
    tm = image_manager(CutMix(num_classes=4))
    before = torch.get_rng_state()
    tm.train()
    assert torch.get_rng_state().equal(before)


def test_inputs_that_are_not_images_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(CutMix(num_classes=2)).train()
    assert str(caught.value) == (
        "inputs must have the shape (batch, ..., height, width) to cut boxes, but have (16, 2)"
    )


def test_targets_for_each_pixel_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        CutMix(num_classes=4).pre_train_model_forward(inputs=IMAGES, targets=torch.zeros(4, 8, 8).long())
    assert str(caught.value) == "targets must be those of whole images, but have the shape (4, 8, 8)"


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="alpha must be a number above 0, but is -1"):
        CutMix(-1)
    with pytest.raises(InputError, match="num_classes must be a whole number of at least 2, but is 0"):
        CutMix(num_classes=0)
