"""What it takes to keep the state of a batch in a ``Moment``, and to put it back.

python -m benchmarks moment
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.measure import differences, interleaved
from benchmarks.mlp import Clocked, new_batches, new_model, sgd
from benchmarks.section import Claim, Section, table
from train_manager import TrainManager
from train_manager.tools import Moment

WARMUP: Final = 10
QUICK: dict[str, Any] = {"rounds": 1, "steps": 50}

TEXT: Final = """\
CPU time that a step of an MLP on a batch of 32 takes longer, without extensions:

{table}
"""


class Kept(TrainManager):
    """Keeps the state before each update."""

    def train_batch(self) -> None:
        Moment(self)
        super().train_batch()


class PutBack(TrainManager):
    """Puts the state back that it has kept before each update, and updates then."""

    def train_batch(self) -> None:
        Moment(self).restore()
        super().train_batch()


OPTIMIZERS: Final[dict[str, Any]] = {"SGD": sgd, "AdamW": AdamW}
KINDS: Final[dict[str, type[TrainManager]]] = {"plain": TrainManager, "kept": Kept, "put back": PutBack}


def section(rounds: int = 7, steps: int = 300) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    batches = new_batches(steps + 2 * WARMUP)
    cases = {(name, kind): _turn(batches, name, kind) for name in OPTIMIZERS for kind in KINDS}
    measured = interleaved(cases, rounds)
    rows, of_a_moment = [], {}
    for name in OPTIMIZERS:
        kept = differences(measured[name, "kept"], measured[name, "plain"]).times(1e3)
        put_back = differences(measured[name, "put back"], measured[name, "kept"]).times(1e3)
        rows.append([name, kept.shown(2), put_back.shown(2)])
        of_a_moment[name] = kept.median
    text = TEXT.format(table=table(["optimizer", "Moment, ms", "restore, ms"], rows))
    claim = Claim("a Moment of a small model with SGD", of_a_moment["SGD"], must=0.7, goal=0.6, unit="ms")
    return Section("A stage again", text, [claim], on_page=False)


def _turn(batches: list[Any], name: str, kind: str) -> Callable[[], float]:
    """Return what measures the CPU seconds of a step."""

    def turn() -> float:
        clocked = Clocked(batches, WARMUP)
        KINDS[kind](model=new_model(), loss=F.cross_entropy, optimizer=OPTIMIZERS[name], train_data=clocked).train()
        return clocked.seconds_per_step()

    return turn
