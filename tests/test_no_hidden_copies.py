"""With all shipped extensions that only watch, a step waits for the device no more often than a bare loop does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from train_manager import Extension, TrainManager, always
from train_manager.extensions import Avg, EvalTotals, LossCurves, Metrics, ProgressBar

READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default, torch.ops.aten.equal.default)


def accuracy(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (prediction.argmax(dim=1) == targets).float().mean()


def watching() -> list[Extension]:
    return [ProgressBar(), LossCurves(), Metrics(accuracy=accuracy), Avg("loss"), EvalTotals()]


def manager(folder: Path, *extensions: Extension, device: str = "cpu") -> TrainManager:
    batches = [(torch.rand(16, 8), torch.randint(0, 2, (16,))) for _ in range(20)]
    return TrainManager(
        model=nn.Linear(8, 2),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        train_data=batches,
        device=device,
        train_dir=folder,
        extensions=[*extensions, *watching()],
    )


class CountReads(TorchDispatchMode):
    """Counts what reads a number off a tensor, as ``.item()``, ``float()`` and ``if`` do."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in READS
        return func(*args, **(kwargs or {}))


class ReadsOfSteps(Extension):
    """How often each step has read; it stands around all other hooks of the step."""

    priority = -1000

    def __init__(self, reads: CountReads) -> None:
        self.reads = reads
        self.at = [0]

    @always
    def post_train_step_batch(self) -> None:
        self.at.append(self.reads.count)


def test_no_step_reads_a_number_with_all_watching_extensions_on(tmp_path: Path) -> None:
    with CountReads() as reads:  # type: ignore[no-untyped-call]
        steps = ReadsOfSteps(reads)
        manager(tmp_path, steps).train()
    assert steps.at == [0] * 21


def test_what_is_counted_is_found(tmp_path: Path) -> None:
    reading = Extension.of(post_train_step_batch=lambda loss: loss.item())
    with CountReads() as reads:  # type: ignore[no-untyped-call]
        steps = ReadsOfSteps(reads)
        manager(tmp_path, steps, reading).train()
    assert steps.at[-1] == 19  # of the steps before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_no_step_synchronises_with_the_gpu(tmp_path: Path) -> None:
    class Strict(Extension):
        """Any synchronisation inside a step is an error."""

        priority = -1000

        def pre_train_step_batch(self) -> None:
            torch.cuda.set_sync_debug_mode("error")

        @always
        def post_train_step_epoch(self) -> None:
            torch.cuda.set_sync_debug_mode("default")

    tm = manager(tmp_path, Strict(), device="cuda")
    assert tm.train_data is not None
    tm.train_data = [tuple(part.cuda() for part in batch) for batch in tm.train_data]
    tm.train_epochs(1)
    assert tm.step_num == 20
