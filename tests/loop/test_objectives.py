from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from train_manager import Extension, InputError
from train_manager.loop.objectives import Objective
from train_manager.testing import tiny_manager


class Classify(Objective):
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def metrics(self, prediction: Tensor, targets: Tensor) -> Mapping[str, Tensor | float]:
        return {
            "accuracy": (prediction.argmax(dim=1) == targets).float().mean(),
            "one": 1.0,
            "first": prediction[:, 0].mean(),
        }


def uneven_batches() -> list[Any]:
    batches: Any = tiny_manager().train_data
    return list(batches)  # of 16, 16 and 8 examples


def test_its_metrics_are_means_over_the_examples_in_the_results_of_an_evaluation() -> None:
    objective = Classify()
    tm = tiny_manager(objective, loss=objective.loss, eval_data={"all": uneven_batches()})
    inputs, targets = (torch.cat(parts) for parts in zip(*uneven_batches(), strict=True))
    result = tm.eval()["all"]
    assert list(result) == ["loss", "accuracy", "one", "first"]
    assert result["accuracy"] == pytest.approx((tm.model(inputs).argmax(dim=1) == targets).float().mean().item())
    assert result["one"] == 1.0


def test_a_second_evaluation_begins_anew() -> None:
    objective = Classify()
    tm = tiny_manager(objective, loss=objective.loss)
    assert tm.eval() == tm.eval()


def test_metrics_of_an_evaluation_that_failed_are_not_in_the_next() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_eval_step_batch(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise ValueError("on purpose")

    objective, whole = Classify(), Classify()
    tm = tiny_manager(objective, FailOnce(), loss=objective.loss)
    with pytest.raises(ValueError, match="on purpose"):
        tm.eval()
    assert tm.eval() == tiny_manager(whole, loss=whole.loss).eval()


def test_without_metrics_only_the_loss_is_measured() -> None:
    objective = Objective()
    assert list(tiny_manager(objective).eval()["valid"]) == ["loss"]


def test_an_objective_without_a_loss_says_how_to_write_one() -> None:
    with pytest.raises(InputError) as caught:
        Objective().loss(None, None)
    assert str(caught.value) == (
        "Objective has no loss\n"
        "  write it: def loss(self, prediction, targets): return F.cross_entropy(prediction, targets)"
    )


@pytest.mark.parametrize(
    ("value", "found"), [(torch.ones(16), "has shape (16,)"), ("high", "is a str")], ids=["shape", "type"]
)
def test_a_metric_that_is_not_a_scalar_is_refused(value: Any, found: str) -> None:
    class Wrong(Classify):
        def metrics(self) -> Mapping[str, Any]:  # type: ignore[override]
            return {"accuracy": value}

    objective = Wrong()
    with pytest.raises(InputError) as caught:
        tiny_manager(objective, loss=objective.loss).eval()
    assert str(caught.value) == (
        f"metric 'accuracy' must be a scalar, but {found}\n  reduce it to the mean over the batch: value.mean()"
    )


@pytest.mark.parametrize("value", [2**24 + 1, torch.tensor(2**24 + 1)])
def test_a_metric_that_is_a_whole_number_keeps_its_digits(value: Any) -> None:
    class Counts(Classify):
        def metrics(self) -> Mapping[str, Any]:  # type: ignore[override]
            return {"count": value}

    objective = Counts()
    assert tiny_manager(objective, loss=objective.loss).eval()["valid"]["count"] == 2**24 + 1


def test_an_unknown_fixture_that_a_metric_names_is_an_error() -> None:
    class Asks(Classify):
        def metrics(self, predictions: Tensor) -> Mapping[str, Any]:  # type: ignore[override]
            return {}

    objective = Asks()
    with pytest.raises(LookupError, match="did you mean 'prediction'"):
        tiny_manager(objective, loss=objective.loss).eval()
