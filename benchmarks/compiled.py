"""What a step that ``Compile`` makes a graph of takes, over the same by hand without a graph.

python -m benchmarks compiled
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR

from benchmarks.measure import interleaved, ratios, seconds_each, spread
from benchmarks.mlp import Batch, new_model
from benchmarks.section import Claim, Section, table
from benchmarks.usual import MAX_NORM, WATCHING, Watcher, adamw, clip, new_batches
from train_manager import Extension, TrainManager
from train_manager.extensions import Compile, LRSchedule

WARMUP: Final = 10
QUICK: dict[str, Any] = {"rounds": 1, "steps": 40}

TEXT: Final = """\
The same MLP with AdamW and the extension `Compile`, over the same by hand, which is not compiled. The graphs are made
before the clock starts: that takes from seconds to a minute.

{table}
"""

Make = Callable[[], Extension]


def section(rounds: int = 15, steps: int = 300) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    batches = new_batches(steps)
    cases: dict[str, tuple[list[Make], dict[str, Any], float, float]] = {
        "a step": ([], {}, 0.50, 0.42),
        "a step that five extensions watch": ([Watcher for _ in range(WATCHING)], {}, 0.50, 0.43),
        "a step with clipped gradients": ([clip], {"max_norm": MAX_NORM}, 0.60, 0.60),
        "a step with a schedule": ([schedule], {"has_schedule": True}, 0.60, 0.60),
    }
    turns: dict[tuple[str, str], Callable[[], float]] = {}
    for what, (made, options, _, _) in cases.items():
        turns[what, "ours"] = compiled(batches, made)
        turns[what, "by_hand"] = by_hand(batches, **options)
    measured = interleaved(turns, rounds)
    over = {what: ratios(measured[what, "ours"], measured[what, "by_hand"]) for what in cases}
    micros = {what: spread(measured[what, "by_hand"]).times(1e6).median for what in cases}
    rows = [[what, f"{micros[what]:.0f}", over[what].shown(2)] for what in cases]
    claims = [Claim(f"{what}, compiled", over[what].median, must, goal) for what, (_, _, must, goal) in cases.items()]
    return Section("Compiled batches", TEXT.format(table=table(["", "us by hand", "ratio"], rows)), claims)


def schedule() -> LRSchedule:
    """The schedule of the loop by hand."""
    return LRSchedule(LinearLR, per="step")


def compiled(batches: list[Batch], extensions: Iterable[Make]) -> Callable[[], float]:
    """Return a function that measures a step; the graphs are made here."""
    made = [Compile(), *(make() for make in extensions)]
    tm = TrainManager(
        model=new_model(), loss=F.cross_entropy, optimizer=adamw, train_data=batches, extensions=made, eval_at=()
    )
    with contextlib.redirect_stderr(io.StringIO()):
        tm.train_epochs(2)
    assert not tm._setup.graphs.refused, tm._setup.graphs.refused
    return lambda: seconds_each(tm.train_epochs, 1) / len(batches)


def by_hand(batches: list[Batch], max_norm: float | None = None, has_schedule: bool = False) -> Callable[[], float]:
    """Return a function that measures a step of the loop by hand."""
    model = new_model()
    optimizer = adamw(model.parameters())
    schedule = LinearLR(optimizer) if has_schedule else None
    epoch = partial(train, model, optimizer, batches, max_norm, schedule)
    return lambda: seconds_each(lambda _: epoch(), 1) / len(batches)


def train(
    model: nn.Module, optimizer: Optimizer, batches: list[Batch], max_norm: float | None, schedule: LinearLR | None
) -> None:
    """One epoch."""
    for inputs, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if schedule is not None:
            schedule.step()
