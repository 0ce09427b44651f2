"""What watchers cost with their defaults together, over the same training without them.

    python -m benchmarks watchers

Two managers train by turns, some steps each, so that both see the same machine. A round has as many steps as there are
between two looks of the watcher that looks least often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final, NamedTuple

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
    NonFiniteFinder,
    PredictionGallery,
    Throughput,
    UpdateRatios,
    WeightHistograms,
)

QUICK: dict[str, Any] = {"steps": 100}
STEPS_IN_A_TURN: Final = 100

TEXT: Final = """\
CPU time of a training step, in trainings with a store and without an evaluation. The inner stages of a batch stay
closed without watchers, and any hook inside opens them.

{table}

`GradientNorms` measures each update; the first 1,000, each of which is stored by itself, are left out where a step is
short. What it costs grows with the weights, and is more of a step whose batch is small beside them. `UpdateRatios` and
`ActivationStatistics` look at one step in 20, and `WeightHistograms` at one in 500. `ConfusionMatrix` and
`PredictionGallery` have no hook in a training step. `NonFiniteFinder` looks at each loss and each gradient, and is not
among all of them, since it waits for a GPU.
"""

WATCHERS: Final[dict[str, Callable[[], list[Extension]]]] = {
    "`GradientNorms`": lambda: [GradientNorms()],
    "`UpdateRatios`": lambda: [UpdateRatios()],
    "`ActivationStatistics`": lambda: [ActivationStatistics()],
    "`WeightHistograms`": lambda: [WeightHistograms()],
    "`Throughput`": lambda: [Throughput()],
    "`NonFiniteFinder`": lambda: [NonFiniteFinder()],
    "all of them": lambda: [
        *(GradientNorms(), UpdateRatios(), ActivationStatistics(), WeightHistograms(), Throughput()),
        *(ConfusionMatrix(), PredictionGallery()),
    ],
}


def mlp() -> nn.Sequential:
    """A model of 10 layers with 20 parameters."""
    inner = [layer for _ in range(9) for layer in (nn.Linear(112, 112), nn.ReLU())]
    return nn.Sequential(*inner, nn.Linear(112, 10))


def cnn() -> nn.Sequential:
    """A model of 4 convolutions with BatchNorm, for pictures of 32 by 32 pixels."""
    blocks: list[nn.Module] = []
    for number in range(4):
        blocks += [nn.Conv2d(20 if number else 3, 20, 3, padding=1), nn.BatchNorm2d(20), nn.ReLU()]
        blocks += [nn.MaxPool2d(2)] if number % 2 else []
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(20 * 64, 10))


class Problem(NamedTuple):
    """What is trained: a model, the shape of a batch, how many rounds count, and how many of them come first."""

    model: Callable[[], nn.Sequential]
    shape: tuple[int, ...]
    rounds: int
    first: float


SHORT, LONG, ALL = "an MLP, some 1 ms", "a CNN, some 20 ms", "all of them"
FINDER: Final = "`NonFiniteFinder`"
PROBLEMS: Final = {SHORT: Problem(mlp, (64, 112), 2, 2), LONG: Problem(cnn, (12, 3, 32, 32), 1, 0.2)}


def section(steps: int = 500) -> Section:
    """Measure, in rounds of so many steps."""
    torch.set_num_threads(1)
    rows, whole = [], {}
    with TemporaryDirectory() as folder:
        for about, problem in PROBLEMS.items():
            for name, make in WATCHERS.items():
                if name not in (ALL, FINDER) and about != SHORT:
                    continue
                plain, ratios = measured(problem, make, steps, Path(folder))
                ratio = spread(ratios)
                rows.append([f"{name}, {about}", spread(plain).times(1e3).shown(2), ratio.shown(3)])
                whole[about, name] = ratio.median
    claims = [
        Claim("a step of a CNN of some 20 ms with all watchers", whole[LONG, ALL], must=1.05, goal=1.03),
        Claim("a step of an MLP of some 1 ms with all watchers", whole[SHORT, ALL], must=1.20, goal=1.15),
        Claim("a step of a CNN of some 20 ms with `NonFiniteFinder`", whole[LONG, FINDER], must=1.02, goal=1.01),
    ]
    return Section("Watchers", TEXT.format(table=table(["", "ms without", "ratio"], rows)), claims, on_page=False)


def measured(
    problem: Problem, make: Callable[[], list[Extension]], steps: int, folder: Path
) -> tuple[list[float], list[float]]:
    """Return the seconds of a step without watchers, and the ratios with them, of each round."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(10, problem.shape[:1], generator=generator)
    data = [(torch.randn(problem.shape, generator=generator), targets)]
    plain, ratios = [], []
    with collector_off(), TemporaryDirectory(dir=folder) as one, TemporaryDirectory(dir=folder) as other:
        pair = [manager(problem, [], data, one), manager(problem, make(), data, other)]
        with pair[0].run(), pair[1].run():
            by_turns(pair, int(steps * problem.first))
            for _ in range(problem.rounds):
                without, with_them = by_turns(pair, steps)
                plain.append(without / steps)
                ratios.append(with_them / without)
    return plain, ratios


def by_turns(managers: Sequence[TrainManager], steps: int) -> list[float]:
    """Return the CPU seconds that each manager takes for so many steps, a few at a time."""
    seconds = [0.0 for _ in managers]
    for turn in range(steps // STEPS_IN_A_TURN):
        for index, tm in list(enumerate(managers))[:: 1 if turn % 2 else -1]:
            before = process_time()
            tm.train_steps(STEPS_IN_A_TURN)
            seconds[index] += process_time() - before
    return seconds


def manager(problem: Problem, watchers: list[Extension], data: list[Batch], folder: str) -> TrainManager:
    """Return a manager that trains endlessly on one batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = problem.model()
    return TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        train_data=data * 1000,
        extensions=[MetricStore(), *watchers],
        train_dir=folder,
    )
