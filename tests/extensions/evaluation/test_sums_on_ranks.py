"""What extensions gather of the rows of each process that trains is, at the end, that of one process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import data, manager, rows
from tests.support.ranks import on_ranks
from train_manager import Extension, InMemory, SeededDataLoader
from train_manager.extensions import (
    Accumulate,
    Avg,
    ConfusionMatrix,
    CutMix,
    Distributed,
    EvalTotals,
    HardExamples,
    Metrics,
    Mixup,
    OutOfDistribution,
)

SETS = {"odd": 51, "one": 1, "many": 45}


def sets() -> dict[str, InMemory]:
    return {name: data(n, batch_size=10, shuffle=False) for name, n in SETS.items()}


def joined(strategy: str | None) -> list[Extension]:
    torch.manual_seed(0)
    return [] if strategy is None else [Distributed(strategy)]


class Notes(Extension):
    """Keep what hooks see as an epoch and as an evaluation ends."""

    def __init__(self) -> None:
        self.epochs: list[tuple[float, ...]] = []
        self.evaluations: list[tuple[float, ...]] = []

    def post_train_step_epoch(self, avg_loss: Any, avg_true_batch_size: Any) -> None:
        self.epochs.append((float(avg_loss), float(avg_true_batch_size)))

    def post_eval_step_epoch(self, avg_loss: Any, num_batches: int, num_samples: int, cum_loss: Any) -> None:
        self.evaluations.append((float(avg_loss), num_batches, num_samples, float(cum_loss)))


def of_sums(strategy: str | None) -> dict[str, Any]:
    notes, confusion = Notes(), ConfusionMatrix()
    outside = OutOfDistribution("many", inside="odd")
    of_evaluations = Avg("loss", at="eval_step_batch", over="eval_step_epoch", weight="true_batch_size")
    own = [notes, EvalTotals(), Avg("loss", "true_batch_size"), of_evaluations, confusion, outside]
    tm = manager(*own, *joined(strategy), eval_data=sets())
    tm.train()
    return {
        "epochs": notes.epochs,
        "evaluations": notes.evaluations,
        "matrices": confusion.matrices,
        "auroc": [row["auroc_energy"] for row in tm.history.evaluations if "auroc_energy" in row],
        "scores": {name: found.tolist() for name, found in outside.scores.items()},
    }


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["after", pytest.param("fsdp", marks=pytest.mark.whole)])
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.whole)])
def test_sums_over_the_rows_of_ranks_are_those_of_one_process(
    fork_server: ForkServer, tmp_path: Path, number: int, strategy: str
) -> None:
    alone = of_sums(None)

    together = on_ranks(fork_server, number, of_sums, strategy, folder=tmp_path)

    for one in together:
        assert one == together[0]
        assert one["matrices"] == alone["matrices"]
        # In 32 bits, as the losses are.
        assert [loss for loss, _ in one["epochs"]] == pytest.approx([loss for loss, _ in alone["epochs"]], rel=2e-7)
        for found, expected in zip(one["evaluations"], alone["evaluations"], strict=True):
            assert found == pytest.approx(expected, rel=1e-6)
        assert one["auroc"] == pytest.approx(alone["auroc"], abs=1e-7)
        for name, scores in one["scores"].items():
            assert scores == pytest.approx(alone["scores"][name], abs=1e-6)


def of_losses(strategy: str | None, loader: bool) -> list[Any]:
    hard = HardExamples()
    given = torch.utils.data.TensorDataset(*rows(61))
    train_data = SeededDataLoader(given, batch_size=12, shuffle=True) if loader else data(61)
    tm = manager(hard, *joined(strategy), train_data=train_data, eval_data=None)
    tm.train_steps(20)  # four epochs, and a part of one
    tm.train_steps(30)
    return [tuple(one) for one in hard.hardest(61)]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("number", [2, 3])
def test_the_hardest_examples_of_ranks_are_those_of_one_process(
    fork_server: ForkServer, tmp_path: Path, number: int, loader: bool
) -> None:
    alone = sorted(of_losses(None, loader))

    together = on_ranks(fork_server, number, of_losses, "ddp", loader, folder=tmp_path)

    assert together[0] == together[1]
    assert len(alone) == 61
    for found, expected in zip(sorted(together[0]), alone, strict=True):
        assert found[:1] + found[3:] == expected[:1] + expected[3:]  # number, forgotten, learned, epochs, set
        assert found[1:3] == pytest.approx(expected[1:3], abs=1e-6)


def of_one_example(strategy: str | None) -> dict[str, Any]:
    """Train on one example, which stands in on each other rank."""
    notes, hard = Notes(), HardExamples()
    evaluated = Avg("loss", at="eval_step_batch", over="eval_step_epoch")
    own = [notes, hard, EvalTotals(), Avg("loss", "true_batch_size"), evaluated]
    tm = manager(*own, *joined(strategy), n=1, epochs=2)
    tm.train()
    return {"epochs": notes.epochs, "hard": [tuple(one) for one in hard.hardest(3)]}


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("strategy", ["after", "fsdp"])
def test_a_rank_that_has_no_example_in_any_batch_changes_no_sum(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    alone = of_one_example(None)

    together = on_ranks(fork_server, 2, of_one_example, strategy, folder=tmp_path)

    for one in together:
        assert one["epochs"] == [pytest.approx(row, abs=1e-7) for row in alone["epochs"]]
        assert [found[3:] for found in one["hard"]] == [found[3:] for found in alone["hard"]]  # seen once in each epoch


def of_mixed(kind: str) -> tuple[Any, list[int]]:
    x, y = rows(61)
    images = x[:, :4].reshape(-1, 1, 2, 2)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    mixing = Mixup(num_classes=3) if kind == "Mixup" else CutMix(num_classes=3, probability=0.5)
    train_data = InMemory(images, y, batch_size=12, shuffle=True)
    tm = manager(mixing, *joined("after"), Accumulate(2), model=model, train_data=train_data, eval_data=None)
    tm.train()
    return mixing.draws.state_dict(), model.state_dict()["1.weight"].tolist()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("kind", ["Mixup", "CutMix"])
def test_ranks_mix_their_batches_by_one_sequence_of_draws(fork_server: ForkServer, tmp_path: Path, kind: str) -> None:
    first, second = on_ranks(fork_server, 2, of_mixed, kind, folder=tmp_path)

    assert first == second  # so that the state of rank 0 in a checkpoint is that of all
    assert all(math.isfinite(number) for row in first[1] for number in row)


def of_epoch(strategy: str | None, folder: str, *parts: int, loads: bool = False) -> tuple[float, float]:
    """Train the batches of an epoch in parts, each of which resumes from the state of the one before."""
    file = Path(folder, "state.pt")
    for number, steps in enumerate(parts):
        metrics, seen = Metrics("accuracy"), list[float]()
        show = Extension.of(post_train_step_epoch=lambda avg_loss, seen=seen: seen.append(float(avg_loss)))
        tm = manager(metrics, Avg("loss"), show, *joined(strategy), eval_data=None, epochs=1)
        if number or loads:
            tm.load_state_dict(torch.load(file, weights_only=False))
        tm.train_steps(steps)
        state = tm.state_dict()  # all ranks must call it
        tm.ranks.gather(None)
        if tm.ranks.place.rank == 0:
            torch.save(state, file)
        tm.ranks.gather(None)
    return metrics.epoch["accuracy"], seen[-1]


@pytest.mark.slow
@pytest.mark.whole
def test_sums_of_an_epoch_that_is_resumed_are_those_of_one_that_is_not(fork_server: ForkServer, tmp_path: Path) -> None:
    def together(number: int, *parts: int) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = on_ranks(
            fork_server, number, of_epoch, "after", str(tmp_path), *parts, folder=tmp_path
        )
        return found

    alone = of_epoch(None, str(tmp_path), 6)
    without_stop = together(2, 6)

    assert together(2, 2, 4) == without_stop  # to the bit
    assert without_stop[0] == pytest.approx(alone, rel=2e-7)
    together(2, 3)
    assert of_epoch("after", str(tmp_path), 3, loads=True) == pytest.approx(alone, abs=1e-6)
