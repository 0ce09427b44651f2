"""Objectives of a file: the weighted sum of losses at modules, or between two of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.learner.files import learner_of, network
from train_manager import Extension, InputError
from train_manager.learner.objectives import Objectives, contrast

CLASS = {"use": "cross_entropy", "at": "head"}
SIDE = {"side": {"use": "Linear", "from": "trunk", "out_features": 3}}


def given() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    return {"head": torch.randn(6, 3), "side": torch.randn(6, 3)}, torch.tensor([0, 1, 2, 0, 1, 2])


def test_several_objectives_are_added_with_their_weights() -> None:
    prediction, targets = given()
    objectives = Objectives(
        {"class": {**CLASS, "weight": 0.5}, "other": {"use": "MultiMarginLoss", "at": "side", "weight": 2}}
    )
    expected = 0.5 * F.cross_entropy(prediction["head"], targets) + 2 * nn.MultiMarginLoss()(
        prediction["side"], targets
    )

    assert objectives(prediction, targets).allclose(expected)


def test_the_arguments_of_a_loss_are_those_beside_its_word() -> None:
    prediction, targets = given()
    found = Objectives({"class": {**CLASS, "label_smoothing": 0.2}})(prediction["head"], targets)

    assert found.equal(F.cross_entropy(prediction["head"], targets, label_smoothing=0.2))


def test_an_objective_between_two_modules_needs_no_targets() -> None:
    prediction, _ = given()
    objectives = Objectives({"pair": {"use": "contrast", "between": ["head", "side"], "temperature": 0.2}})

    assert objectives(prediction).equal(contrast(prediction["head"], prediction["side"], 0.2))


def test_an_objective_whose_column_a_batch_does_not_have_is_left_out() -> None:
    prediction, targets = given()
    both = {"class": {**CLASS, "targets": "label"}, "other": {"use": "cross_entropy", "at": "side", "targets": "sort"}}
    found = Objectives(both).parts(prediction, {"label": targets})

    assert list(found) == ["class"]


def test_a_batch_without_any_truth_is_an_error() -> None:
    prediction, targets = given()
    objectives = Objectives({"class": {**CLASS, "targets": "label"}})

    with pytest.raises(InputError, match=r"^no objective can be computed: the batch has sort\n"):
        objectives(prediction, {"sort": targets})


def test_the_loss_of_each_objective_is_measured_under_its_name_without_its_weight() -> None:
    seen: list[dict[str, float]] = []

    def keep(losses: Any, loss: Any) -> None:
        seen.append({**{name: float(part.detach()) for name, part in losses.items()}, "sum": float(loss.detach())})

    objectives = {"class": {**CLASS, "weight": 0.5}, "other": {"use": "cross_entropy", "at": "side", "weight": 2.0}}
    learner = learner_of(model=network(module={**network()["module"], **SIDE}, objective=objectives))
    learner.tm.add_extension(Extension.of(post_train_step_batch=keep))
    learner.train_epoch()

    assert len(seen) == 3
    assert all(one["sum"] == pytest.approx(0.5 * one["class"] + 2 * one["other"]) for one in seen)
