"""How well a classifier notices foreign examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from train_manager import InMemory, InputError, TrainManager
from train_manager.extensions import OutOfDistribution
from train_manager.metrics.outside_scores import auroc, max_softmax
from train_manager.testing import tiny_manager

NOISE = InMemory(torch.full((6, 2), 9.0), torch.zeros(6).long(), batch_size=4)


def manager(extension: OutOfDistribution, **sets: Any) -> TrainManager:
    tm = tiny_manager(extension)
    tm.eval_data = sets or {**tm.eval_data, "noise": NOISE}
    return tm


def test_the_area_is_that_of_the_scores_of_both_sets() -> None:
    extension = OutOfDistribution(["noise"], score="max_softmax")
    tm = manager(extension)
    found = tm.eval()

    with torch.no_grad():
        inside = torch.cat([max_softmax(tm.model(inputs)) for inputs, _ in tm.eval_data["valid"]])
        outside = torch.cat([max_softmax(tm.model(inputs)) for inputs, _ in NOISE])
    assert found["noise"]["auroc_max_softmax"] == pytest.approx(auroc(inside, outside))
    assert "auroc_max_softmax" not in found["valid"]
    assert extension.scores["noise"].tolist() == pytest.approx(outside.tolist())


def test_the_history_has_it_beside_the_loss() -> None:
    tm = manager(OutOfDistribution("noise"))
    tm.train()

    assert [row["auroc_energy"] for row in tm.history.evaluations if row["set"] == "noise"]


def test_each_evaluation_begins_anew() -> None:
    extension = OutOfDistribution("noise")
    tm = manager(extension)
    tm.eval()
    tm.eval()

    assert len(extension.scores["noise"]) == 6


def test_sets_that_are_not_named_have_no_scores() -> None:
    extension = OutOfDistribution("noise")
    tm = manager(extension, valid=NOISE, other=NOISE, noise=NOISE)
    tm.eval()

    assert set(extension.scores) == {"valid", "noise"}


def test_a_foreign_set_before_the_known_one_is_refused_with_the_cure() -> None:
    with pytest.raises(InputError) as caught:
        manager(OutOfDistribution("noise"), noise=NOISE, valid=NOISE).eval()

    assert str(caught.value) == (
        "OutOfDistribution compares 'noise' with 'valid', which was not evaluated before\n"
        "  let 'valid' be the first set of eval_data, or name another: OutOfDistribution(inside=...)"
    )


def test_a_prediction_without_classes_is_refused() -> None:
    tm = tiny_manager(
        OutOfDistribution("noise"), model=nn.Linear(2, 1), loss=lambda prediction, targets: prediction.mean()
    )

    with pytest.raises(InputError) as caught:
        tm.eval()

    assert str(caught.value) == (
        "OutOfDistribution needs a prediction with a column for each class, but it is (16, 1)\n"
        "  let the model return (examples, classes)"
    )


@pytest.mark.parametrize(("outside", "inside", "wrong"), [("nope", "valid", "nope"), ("noise", "known", "known")])
def test_a_set_that_there_is_not_is_refused_before_the_first_step(outside: str, inside: str, wrong: str) -> None:
    tm = manager(OutOfDistribution(outside, inside))
    with pytest.raises(InputError) as caught:
        tm.train()

    assert str(caught.value).startswith(
        f"OutOfDistribution was given the set {wrong!r}, but eval_data has 'valid' and 'noise'\n"
        "  name the sets as in eval_data: OutOfDistribution(outside=[...], inside=...)"
    )
    assert tm.step_num == 0


def test_another_score_is_refused() -> None:
    with pytest.raises(InputError, match=r"^score must be 'energy' or 'max_softmax', but is 'entropy'$"):
        OutOfDistribution("noise", score="entropy")
