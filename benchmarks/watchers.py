"""What watchers cost with their defaults together, over the same training without them.

    python -m benchmarks watchers

Each turn trains two managers by turns, some steps each, so that both see the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.measure import collector_off, spread
from benchmarks.mlp import Batch
from benchmarks.section import Claim, Section, table
from train_manager import Extension, TrainManager
from train_manager.extensions import (
    ActivationStatistics,
    ConfusionMatrix,
    GradientNorms,
    MetricStore,
    PredictionGallery,
    Throughput,
    UpdateRatios,
    WeightHistograms,
)

QUICK: dict[str, Any] = {"rounds": 1, "steps": 500}
STEPS_IN_A_TURN: Final = 100

TEXT: Final = """\
CPU time of a training step, on a batch of 64, in trainings with a store and without an evaluation. The inner stages of
a batch stay closed without watchers, and any hook inside opens them.

{table}

`GradientNorms` measures each update; its first 1,000, which are stored one by one and take some 40 us more, are left out
where a step is short. `UpdateRatios` and `ActivationStatistics` look at one step in 20, and
`WeightHistograms` at one in 500. `ConfusionMatrix` and `PredictionGallery` have no hook in a training step.
"""

WATCHERS: Final[dict[str, Callable[[], list[Extension]]]] = {
    "`GradientNorms`": lambda: [GradientNorms()],
    "`UpdateRatios`": lambda: [UpdateRatios()],
    "`ActivationStatistics`": lambda: [ActivationStatistics()],
    "`WeightHistograms`": lambda: [WeightHistograms()],
    "`Throughput`": lambda: [Throughput()],
    "all of them": lambda: [
        *(GradientNorms(), UpdateRatios(), ActivationStatistics(), WeightHistograms(), Throughput()),
        *(ConfusionMatrix(), PredictionGallery()),
    ],
}


def mlp(width: int) -> nn.Sequential:
    """A model of 10 layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner = [layer for _ in range(9) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*inner, nn.Linear(width, 10))


SHORT, LONG, ALL = "some 1 ms", "some 20 ms", "all of them"
MODELS: Final[dict[str, tuple[int, float]]] = {SHORT: (112, 1.0), LONG: (560, 0.2)}
"""The width of the model whose step takes so long, and which share of the steps is done."""


def section(rounds: int = 5, steps: int = 2500) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    rows, whole = [], {}
    with TemporaryDirectory() as folder:
        for about, (width, share) in MODELS.items():
            for name, make in WATCHERS.items():
                if name != ALL and about != SHORT:
                    continue
                plain, ratios = measured(width, make, rounds, int(steps * share), Path(folder))
                ratio = spread(ratios)
                rows.append([f"{name}, {about}", spread(plain).times(1e3).shown(2), ratio.shown(3)])
                whole[about, name] = ratio.median
    claims = [
        Claim("a step of some 20 ms with all watchers", whole[LONG, ALL], must=1.05, goal=1.03),
        Claim("a step of some 1 ms with all watchers", whole[SHORT, ALL], must=1.20, goal=1.15),
    ]
    return Section("Watchers", TEXT.format(table=table(["", "ms without", "ratio"], rows)), claims)


def measured(
    width: int, make: Callable[[], list[Extension]], rounds: int, steps: int, folder: Path
) -> tuple[list[float], list[float]]:
    """Return the seconds of a step without watchers, and the ratios with them, of each round."""
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(64, width, generator=generator), torch.randint(10, (64,), generator=generator))]
    plain, ratios = [], []
    with collector_off():
        for _ in range(rounds):
            with TemporaryDirectory(dir=folder) as first, TemporaryDirectory(dir=folder) as second:
                pair = [manager(width, [], data, first), manager(width, make(), data, second)]
                with pair[0].run(), pair[1].run():
                    without, with_them = by_turns(pair, steps)
            plain.append(without / steps)
            ratios.append(with_them / without)
    return plain, ratios


def by_turns(managers: Sequence[TrainManager], steps: int) -> list[float]:
    """Return the CPU seconds that each manager takes for so many steps, a few at a time; as many come first."""
    seconds = [0.0 for _ in managers]
    for tm in managers:
        tm.train_steps(steps)
    for turn in range(steps // STEPS_IN_A_TURN):
        for index, tm in list(enumerate(managers))[:: 1 if turn % 2 else -1]:
            before = process_time()
            tm.train_steps(STEPS_IN_A_TURN)
            seconds[index] += process_time() - before
    return seconds


def manager(width: int, watchers: list[Extension], data: list[Batch], folder: str) -> TrainManager:
    """Return a manager that trains endlessly on one batch."""
    return TrainManager(
        model=mlp(width),
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        train_data=data * 1000,
        extensions=[MetricStore(), *watchers],
        train_dir=folder,
    )
