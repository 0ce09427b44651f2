"""Digits in four levels, one of which is pure noise: how often a teacher chooses each.

The images of a level are digits under more and more noise; those of the last level are noise alone, with labels that
say nothing. ``python examples/curriculum.py`` prints the share of each level in each third of the training, as the mean
of five seeds, and the largest share that noise has in the last third:

    third    easy  middle    hard   noise
        1    0.41    0.33    0.24    0.02
        2    0.36    0.35    0.28    0.01
        3    0.31    0.34    0.34    0.02
    noise in the last third: at most 0.03
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from train_manager import Interleaved, TrainManager
from train_manager.extensions import Curriculum

NOISE = {"easy": 0.1, "middle": 0.4, "hard": 0.8}  # standard deviations; of the level "noise" nothing else is left
LEVELS = [*NOISE, "noise"]


class Level:
    """Batches without end: digits of a level, under noise that is drawn anew for each batch."""

    endless = True

    def __init__(self, level: str, images: Tensor, labels: Tensor, seed: int) -> None:
        self.level, self.images, self.labels = level, images, labels
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield self.batch(torch.randint(len(self.labels), (32,), generator=self.generator))

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.randn(len(rows), 64, generator=self.generator)
        noisy = 0.5 + 0.5 * noise if self.level == "noise" else self.images[rows] + NOISE[self.level] * noise
        return noisy, self.labels[rows]


def shares(seed: int, steps: int = 900) -> list[dict[str, float]]:
    """Train, and return the share of each level in each third of the training."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    levels = {level: Level(level, x[200:], y[200:], seed) for level in LEVELS}
    held_out = {level: Level(level, x[:200], y[:200], seed).batch(torch.arange(200)) for level in LEVELS}
    torch.manual_seed(seed)
    curriculum = Curriculum(probe=held_out, seed=seed)
    tm = TrainManager(
        model=nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=partial(torch.optim.SGD, lr=0.1),
        train_data=Interleaved(levels, choose=curriculum.choose),
        steps_per_epoch=steps // 3,
        epochs=3,
        extensions=[curriculum],
    )
    tm.train()
    return [{level: row[f"share/{level}"] for level in LEVELS} for row in tm.history.epochs]


def table(of_seeds: list[list[dict[str, float]]]) -> str:
    lines = ["third" + "".join(f"{level:>8}" for level in LEVELS)]
    for number in range(3):
        means = (sum(one[number][level] for one in of_seeds) / len(of_seeds) for level in LEVELS)
        lines.append(f"{number + 1:5}" + "".join(f"{mean:8.2f}" for mean in means))
    largest = max(one[-1]["noise"] for one in of_seeds)
    return "\n".join([*lines, f"noise in the last third: at most {largest:.2f}"])


if __name__ == "__main__":
    print(table([shares(seed) for seed in range(5)]))
