from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from train_manager import InputError
from train_manager.data.mixing import Draws, blend, draw_box, draw_share, require_mixable, soft_targets


@given(alpha=st.floats(0.05, 20), seed=st.integers(0, 1000))
def test_a_share_is_between_0_and_1(alpha: float, seed: int) -> None:
    assert 0 <= draw_share(alpha, random.Random(seed)) <= 1


@pytest.mark.parametrize(("alpha", "variance"), [(0.2, 1 / 5.6), (1.0, 1 / 12), (8.0, 1 / 68)])
def test_shares_have_the_mean_and_the_variance_of_the_beta_distribution(alpha: float, variance: float) -> None:
    source = random.Random(0)
    shares = torch.tensor([draw_share(alpha, source) for _ in range(20_000)])
    assert shares.mean().item() == pytest.approx(0.5, abs=0.01)
    assert shares.var().item() == pytest.approx(variance, rel=0.05)


@given(height=st.integers(1, 40), width=st.integers(1, 40), share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_box_lies_in_the_image_and_covers_no_more_than_the_rest_of_the_share(
    height: int, width: int, share: float, seed: int
) -> None:
    top, bottom, left, right = draw_box(height, width, share, random.Random(seed))
    assert 0 <= top <= bottom <= height
    assert 0 <= left <= right <= width
    assert (bottom - top) * (right - left) <= (1 - share) * height * width + 1e-6


def test_a_box_that_no_border_cuts_covers_the_rest_of_the_share() -> None:
    boxes = [draw_box(100, 100, 0.75, random.Random(seed)) for seed in range(100)]
    areas = {(bottom - top) * (right - left) for top, bottom, left, right in boxes}
    assert max(areas) == 2500


def test_a_blend_is_a_share_of_one_and_the_rest_of_the_other() -> None:
    assert blend(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), 0.75).tolist() == [0.75, 0.5]


def test_the_loss_of_blended_targets_is_the_blend_of_the_losses() -> None:
    prediction = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    targets, others = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 0, 1, 1])
    soft = blend(soft_targets(targets, 3), soft_targets(others, 3), 0.3)
    expected = 0.3 * F.cross_entropy(prediction, targets) + 0.7 * F.cross_entropy(prediction, others)
    torch.testing.assert_close(F.cross_entropy(prediction, soft), expected)


def test_class_numbers_of_pixels_become_probabilities_that_cross_entropy_takes() -> None:
    prediction = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(40).reshape(2, 4, 5) % 3
    torch.testing.assert_close(
        F.cross_entropy(prediction, soft_targets(targets, 3)), F.cross_entropy(prediction, targets)
    )


def test_floating_point_targets_stay_as_they_are() -> None:
    targets = torch.rand(3, 2)
    assert soft_targets(targets, None) is targets


def test_class_numbers_need_the_number_of_classes() -> None:
    with pytest.raises(InputError) as caught:
        soft_targets(torch.tensor([1, 0]), None)
    assert str(caught.value) == (
        "targets are class numbers (torch.int64), which can be mixed only as probabilities\n"
        "  give the number of classes: num_classes=10"
    )


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        ({"x": torch.rand(2)}, torch.rand(2), "inputs must be a tensor to be mixed, but is a dict"),
        (torch.rand(2), [1, 2], "targets must be a tensor to be mixed, but is a list"),
        (
            torch.rand(2, 8),
            torch.rand(2),
            "inputs must have the shape (batch, ..., height, width) to cut boxes",
        ),
        (
            torch.ones(2, 8, 8).int(),
            torch.rand(2),
            "inputs must be floating point numbers to be mixed, but are",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(inputs: Any, targets: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        require_mixable(inputs, targets, min_dim=3)
    assert str(caught.value).startswith(message)


def test_the_same_seed_draws_the_same() -> None:
    def drawn(seed: int) -> list[Any]:
        draws = Draws(1.0, 0.5, seed)
        return [draws.should_mix(), draws.share(), *draws.partners(8, torch.device("cpu")).tolist()]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_everybody_is_somebodys_partner_once() -> None:
    partners = Draws(1.0, 1.0, 0).partners(50, torch.device("cpu"))
    assert sorted(partners.tolist()) == list(range(50))
    assert partners.tolist() != list(range(50))


def test_the_global_random_states_are_not_touched() -> None:
    python, torchs = random.getstate(), torch.get_rng_state()
    draws = Draws(1.0, 0.5, 0)
    draws.should_mix(), draws.share(), draws.partners(8, torch.device("cpu"))
    assert random.getstate() == python
    assert torch.get_rng_state().equal(torchs)


def test_the_state_is_plain_and_draws_on_through_a_file() -> None:
    draws, again = Draws(1.0, 1.0, 0), Draws(1.0, 1.0, 5)
    draws.share()
    again.load_state_dict(json.loads(json.dumps(draws.state_dict())))

    def following(of: Draws) -> list[Any]:
        return [of.share(), of.partners(9, torch.device("cpu")).tolist()]

    assert following(again) == following(draws)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, 0), "alpha must be a number above 0, but is 0"),
        ((-1.0, 1.0, 0), "alpha must be a number above 0, but is -1.0"),
        ((float("inf"), 1.0, 0), "alpha must be a number above 0, but is inf"),
        (("1", 1.0, 0), "alpha must be a number above 0, but is '1'"),
        ((1.0, 1.5, 0), "probability must be a number of at least 0 and of at most 1, but is 1.5"),
        ((1.0, True, 0), "probability must be a number of at least 0 and of at most 1, but is True"),
        ((1.0, 1.0, 0.5), "seed must be a whole number, but is 0.5"),
    ],
)
def test_arguments_of_no_use_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Draws(*arguments)
    assert str(caught.value) == message


def test_what_is_drawn_is_a_tensor_of_indices() -> None:
    partners: Tensor = Draws(1.0, 1.0, 0).partners(1, torch.device("cpu"))
    assert partners.tolist() == [0]
