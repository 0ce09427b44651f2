"""What a watcher costs in a step of a tiny model with three extensions: one that does nothing, and ``ChangeLog``.

    python -m benchmarks change_log

The managers train by turns, some steps each in a new order each round, so that all see the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import torch

from benchmarks.measure import interleaved, ratios, seconds_each, spread
from benchmarks.section import Claim, Section, table
from train_manager import Extension, TrainManager, Watcher
from train_manager.core.scope import Caller, Scope
from train_manager.extensions import EMA, Avg, ChangeLog, ClipGradients
from train_manager.testing import tiny_manager

QUICK: dict[str, Any] = {"rounds": 3, "steps": 5}

TEXT: Final = """\
CPU time of a training step of a tiny model with `ClipGradients`, `EMA` and `Avg`, in a run without an evaluation.

{table}

"Left" had a watcher, which was removed: the functions of its stages are those from before. A watcher opens each stage.
"""


class Silent(Watcher):
    """Is told, and does nothing."""

    def saw(self, stage: Scope, ran: Caller | str) -> None: ...


PLAIN, LEFT, SILENT, LOG, DEEP = "without", "left", "a watcher that does nothing", "`ChangeLog()`", "with `deep=True`"
WATCHERS: Final[dict[str, Callable[[], list[Extension]]]] = {
    PLAIN: lambda: [],
    LEFT: lambda: [Silent()],
    SILENT: lambda: [Silent()],
    LOG: lambda: [ChangeLog()],
    DEEP: lambda: [ChangeLog(deep=True)],
}


def section(rounds: int = 41, steps: int = 20) -> Section:
    """Measure, in rounds of so many steps for each."""
    torch.set_num_threads(1)
    with ExitStack() as runs:
        managers = {name: manager(make()) for name, make in WATCHERS.items()}
        for name, tm in managers.items():
            runs.enter_context(tm.run())
            tm.train_steps(steps)
            if name == LEFT:
                tm.remove_extension("silent")
        cases = {name: partial(seconds_each, tm.train_steps, steps) for name, tm in managers.items()}
        measured = interleaved(cases, rounds)
    over = {name: ratios(seconds, measured[PLAIN]) for name, seconds in measured.items()}
    rows = [[name, spread(measured[name]).times(1e3).shown(2), over[name].shown(2)] for name in WATCHERS]
    claims = [
        Claim("a step after a watcher has left, over one without", over[LEFT].median, must=1.05, goal=1.02),
        Claim("a step with a watcher that does nothing", over[SILENT].median, must=1.1, goal=1.05),
        Claim("a step with `ChangeLog`", over[LOG].median, must=1.7, goal=1.65),
        Claim("a step with `ChangeLog(deep=True)`", over[DEEP].median, must=2.7, goal=2.6),
    ]
    return Section("Changes", TEXT.format(table=table(["", "ms", "ratio"], rows)), claims, on_page=False)


def manager(watchers: list[Extension]) -> TrainManager:
    """Return a manager that trains endlessly on one batch."""
    inputs = torch.rand(16, 2, generator=torch.Generator().manual_seed(0))
    data = [(inputs, (inputs.sum(dim=1) > 1).long())] * 10_000
    extensions = (ClipGradients(1.0), EMA(0.9), Avg("loss", weight="true_batch_size"), *watchers)
    return tiny_manager(*extensions, train_data=data, eval_data=None)
