"""Leaks by reductions and norms: a number is taken over the batch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, InRoot, beside_batch_norm, deep, floats, net


class OwnBatchNorm(nn.Module):
    """A norm by the statistics of the batch, in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x - x.mean(0)) / (x.std(0) + 1e-3)


class OwnRunningNorm(nn.Module):
    """A norm by the statistics of the batch while it is trained, and by running ones later."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x - self.mean
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        return x - x.mean(0)


def normed_per_map_over_the_batch(maps: Tensor) -> Tensor:
    """The axes of an instance norm are 2 and 3; these are 0 and 2."""
    return (maps - maps.mean((0, 2), keepdim=True)) / (maps.std((0, 2), keepdim=True) + 1e-3)


def spread_of_the_batch(x: Tensor) -> Tensor:
    """A generator's trick: each example is given how much the batch varies."""
    return torch.cat([x, x.std(0).mean().expand(len(x), 1)], 1)


class SecondOutput(nn.Module):
    """The logits are clean; what is given out beside them is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.center = Apply(lambda x: x - x.mean(0))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = torch.tanh(self.first(x))
        return {"logits": self.head(hidden), "more": (None, self.center(hidden))}


class TwoNames(nn.Module):
    """One part by two names: it is called by the second, and told by the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norms = nn.ModuleDict({"early": OwnBatchNorm()})
        self.late = self.norms["early"]
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.late(self.first(x)))
        return logits


class Checkpointed(nn.Module):
    """A block with a norm over the batch inside, computed again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), OwnBatchNorm())

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, x, use_reentrant=False)


class ClassMeans(nn.Module):
    """Distances to the means of the classes, which the batch itself gives."""

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        return torch.cdist(x, classes - x.mean(0))


def images(part: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), part, nn.Flatten(), nn.Linear(3 * 2 * 2, 3))


REDUCTIONS = (
    Case(
        "the mean of the batch taken away",
        lambda: deep(Apply(lambda x: x - x.mean(0))),
        floats(8, 4),
        "body.block.part",
    ),
    Case("an own batch norm", lambda: net(OwnBatchNorm()), floats(8, 4), "part"),
    Case("an own norm with running statistics", lambda: net(OwnRunningNorm()), floats(8, 4), "part", ("train",)),
    Case(
        "an instance norm over the wrong axes",
        lambda: images(Apply(normed_per_map_over_the_batch)),
        floats(8, 1, 4, 4),
        "1",
    ),
    Case("a running sum along the batch", lambda: deep(Apply(lambda x: x.cumsum(0))), floats(7, 4), "body.block.part"),
    Case("features normalised over the batch", lambda: InRoot(lambda x: F.normalize(x, dim=0)), floats(8, 4)),
    Case("a layer norm with the batch in its shape", lambda: net(nn.LayerNorm((8, 6))), floats(8, 4), "part"),
    Case(
        "a group norm that takes rows for channels",
        lambda: net(Apply(lambda x: F.group_norm(x[None], 1)[0])),
        floats(8, 4),
        "part",
    ),
    Case("the spread of the batch as a feature", lambda: net(Apply(spread_of_the_batch), outs=7), floats(8, 4), "part"),
    Case("the second of two outputs", SecondOutput, floats(8, 4), "center"),
    Case("a norm with two names", TwoNames, floats(8, 4), "norms.early"),
    Case(
        "a norm in a checkpoint",
        lambda: deep(Checkpointed()),
        floats(8, 4),
        "body.block.part.block.1",
    ),
    Case(
        "a mean of the batch beside shared classes",
        ClassMeans,
        lambda: {"x": torch.randn(8, 4), "classes": torch.randn(8, 4)},
        options={"shared": ("classes",)},
    ),
    Case(
        "a mean over the batch after a batch norm",
        lambda: beside_batch_norm(Apply(lambda x: x + x.square().mean(0)), before=False),
        floats(8, 4),
        "part",
    ),
    Case(
        "a mean over all axes of complex numbers",
        lambda: net(Apply(lambda x: cast(Tensor, torch.fft.fft(x) - torch.fft.fft(x).mean()).real)),
        floats(8, 4),
        "part",
    ),
)
