"""How well a classifier notices foreign examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from train_manager import InMemory, InputError, TrainManager
from train_manager.extensions import Metrics, OutOfDistribution
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


# ---- what a foreign set may lack, and what a score needs -----------------------------------------------------------


def test_a_foreign_set_may_come_without_targets_and_then_has_no_loss() -> None:
    inputs = torch.full((6, 2), 9.0)
    tm = manager(OutOfDistribution("noise"))
    tm.eval_data = {**tm.eval_data, "noise": InMemory(inputs, batch_size=4)}
    found = tm.train().metrics

    assert list(found["noise"]) == ["auroc_energy"]
    assert list(found["valid"]) == ["loss"]
    assert found["noise"] == {"auroc_energy": trained_with_targets()["noise"]["auroc_energy"]}


def trained_with_targets() -> Any:
    return manager(OutOfDistribution("noise")).train().metrics


def test_a_known_set_without_targets_is_refused_as_without_the_extension() -> None:
    tm = manager(OutOfDistribution("noise"), valid=InMemory(torch.zeros(6, 2), batch_size=4), noise=NOISE)

    with pytest.raises(InputError, match=r"^the loss needs targets, but a batch \(Tensor\) has none"):
        tm.eval()


def test_targets_of_a_foreign_set_that_are_no_classes_get_the_cure() -> None:
    tm = manager(OutOfDistribution("noise"))
    tm.eval_data = {**tm.eval_data, "noise": InMemory(torch.zeros(6, 2), torch.full((6,), 7), batch_size=4)}

    with pytest.raises(IndexError, match="Target 7 is out of bounds") as caught:
        tm.eval()
    assert "leave out the targets of the foreign set 'noise': it needs no loss" in caught.value.__notes__


def log_softmax(**options: Any) -> TrainManager:
    tm = tiny_manager(OutOfDistribution("noise", **options), model=nn.Sequential(nn.Linear(2, 2), nn.LogSoftmax(1)))
    tm.eval_data = {**tm.eval_data, "noise": NOISE}
    return tm


def test_energies_that_are_all_0_are_refused_after_the_set() -> None:
    with pytest.raises(InputError) as caught:
        log_softmax().eval()

    assert str(caught.value) == (
        "OutOfDistribution needs logits, but each energy of 'valid' is 0, as of a model with LogSoftmax\n"
        '  give OutOfDistribution(score="max_softmax"), or let the model return logits'
    )


def test_max_softmax_is_right_for_logarithms_of_probabilities() -> None:
    tm = log_softmax(score="max_softmax")
    found = tm.eval()["noise"]["auroc_max_softmax"]

    logits = tm.model[0]
    with torch.no_grad():
        inside = torch.cat([max_softmax(logits(inputs)) for inputs, _ in tm.eval_data["valid"]])
        outside = torch.cat([max_softmax(logits(inputs)) for inputs, _ in NOISE])
    assert found == pytest.approx(auroc(inside, outside))


@pytest.mark.parametrize("is_first", [True, False])
def test_it_evaluates_with_metrics_in_any_order(is_first: bool) -> None:
    extensions = [OutOfDistribution("noise"), Metrics("accuracy")]
    tm = tiny_manager(*(extensions if is_first else reversed(extensions)))
    tm.eval_data = {**tm.eval_data, "noise": NOISE}

    assert [*tm.eval()["noise"]] == ["loss", "accuracy", "auroc_energy"]
