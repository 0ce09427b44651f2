"""Metrics of processes that train together are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import data, manager, net, outcome
from tests.support.ranks import ends_of, on_ranks, start_ranks
from train_manager import Extension, InputError, report_loss
from train_manager.extensions import Distributed, EarlyStopping, Metrics
from train_manager.metrics import whole

SETS = {"odd": 51, "one": 1, "many": 45, "few": 35}


def error_rate(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction.argmax(1) != targets).float()


def order(prediction: Tensor, targets: Tensor) -> float:
    """A number that another order of the rows would change."""
    places = torch.arange(1, len(prediction) + 1, dtype=torch.double)
    return float((prediction[:, 0].double() * places).sum() / places.sum() + targets[0] / 10)


class Reporting(nn.Module):
    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        report_loss(prediction.square().mean(), "size")
        return nn.functional.cross_entropy(prediction, targets)


def metrics(**more: Any) -> Metrics:
    return Metrics("accuracy", "f1", "losses", error_rate, eval={"order": whole(order)}, **more)


def of_metrics(strategy: str | None, *, stops: bool = False, **more: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    added: list[Extension] = [] if strategy is None else [Distributed(strategy)]
    added = [*added, EarlyStopping("few/f1", patience=2, min_delta=0.01, mode="max")] if stops else added
    sets = {name: data(n, batch_size=10, shuffle=False) for name, n in SETS.items()}
    tm = manager(metrics(**more), *added, loss=Reporting(), eval_data=sets, epochs=30 if stops else 2)
    return outcome(tm, tm.train())


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    # The F1 of a training is a mean over batches, and so over other batches in each process.
    return {name: value for name, value in row.items() if name not in ("seconds", "f1")}


def assert_as_alone(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for one in together:
        assert (one["steps"], one["stopped"]) == (alone["steps"], alone["stopped"])
        for name in ("epochs", "evaluations"):
            found, expected, of_first = ([numbers(row) for row in each[name]] for each in (one, alone, together[0]))
            assert repr(found) == repr(of_first)  # equal to the bit: hooks of all processes decide alike
            assert [list(row) for row in found] == [list(row) for row in expected]
            for row, row_alone in zip(found, expected, strict=True):
                assert row == pytest.approx(row_alone, abs=1e-7, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["after", pytest.param("fsdp", marks=pytest.mark.whole)])
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.whole)])
def test_metrics_of_ranks_are_those_of_one_process(
    fork_server: ForkServer, tmp_path: Path, number: int, strategy: str
) -> None:
    together = on_ranks(fork_server, number, of_metrics, strategy, folder=tmp_path)

    assert_as_alone(together, of_metrics(None))


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("number", [2, 3])
def test_early_stopping_by_a_metric_stops_all_ranks_at_the_step_of_one_process(
    fork_server: ForkServer, tmp_path: Path, number: int
) -> None:
    alone = stopped_early(None)

    together = on_ranks(fork_server, number, stopped_early, "ddp", folder=tmp_path)

    assert 0 < alone["steps"] < 30 * 6
    assert_as_alone(together, alone)


def stopped_early(strategy: str | None) -> dict[str, Any]:
    return of_metrics(strategy, stops=True)


class Summing:
    """Adds up by itself, and says to no process what it has."""

    def __init__(self) -> None:
        self.sum = 0.0

    def update(self, prediction: Tensor, targets: Tensor) -> None:
        self.sum += float(prediction.sum())

    def compute(self) -> float:
        return self.sum

    def reset(self) -> None:
        self.sum = 0.0


def with_an_object(**given: Any) -> dict[str, Any]:
    tm = manager(Metrics(**given), Distributed("after"), epochs=1)
    return outcome(tm, tm.train())


def of_evaluations() -> dict[str, Any]:
    return with_an_object(eval={"summed": Summing()})


@pytest.mark.slow
@pytest.mark.whole
def test_an_object_that_cannot_be_made_one_is_refused_before_the_first_step(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    ends = ends_of(start_ranks(fork_server, 2, of_evaluations, folder=tmp_path), tmp_path)

    assert [type(end.error) for end in ends] == [InputError, InputError]
    assert str(ends[0].error) == (
        "metric 'summed' is a Summing, which would see the examples of one process alone\n"
        "  give whole(function), or a torchmetrics object, which gathers those of all"
    )


def of_trainings() -> dict[str, Any]:
    return with_an_object(train={"summed": Summing()})


@pytest.mark.slow
@pytest.mark.whole
def test_an_object_for_the_training_alone_measures_the_batches_of_each_rank(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    found = on_ranks(fork_server, 2, of_trainings, folder=tmp_path)

    assert found[0]["epochs"][0]["summed"] == found[1]["epochs"][0]["summed"]


def of_torchmetrics(strategy: str | None) -> dict[str, Any]:
    import torchmetrics

    def both(**options: Any) -> Any:
        given = {"task": "multiclass", "num_classes": 3, **options}
        return torchmetrics.MetricCollection(
            {"acc": torchmetrics.Accuracy(average="micro", **given), "roc": torchmetrics.AUROC(**given)}
        )

    torch.manual_seed(0)
    added = [] if strategy is None else [Distributed(strategy)]
    sets = {name: data(n, batch_size=10, shuffle=False) for name, n in SETS.items()}
    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3, average="micro")
    # Of probabilities: whether AUROC takes numbers for logits depends on all numbers of a batch.
    model = nn.Sequential(net(), nn.Softmax(1))
    tm = manager(Metrics(eval={"both": both()}, micro=accuracy), *added, model=model, eval_data=sets, epochs=2)
    return outcome(tm, tm.train())


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:No (posi|nega)tive samples")  # in the set of one example
@pytest.mark.parametrize(("number", "strategy"), [(2, "after"), (3, "after"), (3, "fsdp")])
def test_torchmetrics_objects_gather_by_themselves(
    fork_server: ForkServer, tmp_path: Path, number: int, strategy: str
) -> None:
    pytest.importorskip("torchmetrics")

    together = on_ranks(fork_server, number, of_torchmetrics, strategy, folder=tmp_path)

    assert_as_alone(together, of_torchmetrics(None))
