"""The training that all toolkits do: an MLP of 32, 64 and 10 units, batches of 32 that are there, plain SGD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import process_time

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]
LEARNING_RATE = 0.1


def new_model() -> nn.Sequential:
    """The model, with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))


def new_batches(count: int) -> list[Batch]:
    """So many batches, the same each time."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 32, 32, generator=generator)
    y = torch.randint(10, (count, 32), generator=generator)
    return list(zip(x, y, strict=True))


class Clocked:
    """Batches that note the CPU time at which they are asked for: so the set-up of a run does not count.

    A loop that reads some batches ahead does so at the first reading of the clock as at the last.
    """

    def __init__(self, batches: list[Batch], warmup: int) -> None:
        self._batches = batches
        self._warmup = warmup
        self._seconds: float | None = None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        yield from self._batches[: self._warmup]
        before = process_time()
        yield from self._batches[self._warmup : -self._warmup]
        self._seconds = process_time() - before
        yield from self._batches[-self._warmup :]

    def seconds_per_step(self) -> float:
        """CPU seconds that a step took, the first and the last few left out."""
        assert self._seconds is not None, "there has been a pass"
        return self._seconds / (len(self._batches) - 2 * self._warmup)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
    """The optimizer."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE)
