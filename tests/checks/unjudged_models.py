"""Models of which a check can tell less than all, or nothing: it must say so, and raise no false alarm."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, deep, floats, net


class DroppedExperts(nn.Module):
    """Experts with dropout by row: what is drawn for a row depends on which rows were routed before it."""

    def __init__(self, dropout: Callable[[float], nn.Module]) -> None:
        super().__init__()
        self.router = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), dropout(0.5)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        choice = self.router(x).argmax(1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = choice == number
            out[mine] = expert(x[mine])
        return out


class OwnDropout(nn.Module):
    """Dropout that is not a layer of torch's."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.share, self.training)


class DrawsUntilFound(nn.Module):
    """Draws noise again until it is on each row's own side, so that other rows draw other numbers."""

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for row in x:
            noise = torch.randn(())
            while noise * row[0] < 0:
                noise = torch.randn(())
            rows.append(row + 0.1 * noise)
        return torch.stack(rows)


def with_noise_of_the_system(x: Tensor) -> Tensor:
    return x + 0.1 * random.SystemRandom().random()


def noisy_and_mixed(x: Tensor) -> Tensor:
    return with_noise_of_the_system(x) + x.mean(0)


UNJUDGED: tuple[Case, ...] = (
    Case("noise drawn until it fits", lambda: net(DrawsUntilFound()), floats(8, 4)),
    Case("noise of the system", lambda: deep(Apply(with_noise_of_the_system)), floats(8, 4)),
)
"""Clean, but numbers are drawn otherwise when others change: told as left out, never as an error."""

DROPPED: tuple[Case, ...] = (
    Case("experts with dropout by row", lambda: net(DroppedExperts(nn.Dropout)), floats(8, 4), modes=("train",)),
    Case("experts with dropout by a call", lambda: net(DroppedExperts(OwnDropout)), floats(8, 4), modes=("train",)),
)
"""Clean, if dropout lets all through: else other numbers are drawn for a row when others change."""

UNSTEADY_LEAKING: tuple[Case, ...] = (
    Case("noise of the system and a mean", lambda: deep(Apply(noisy_and_mixed)), floats(8, 4), "body.block.part"),
)
"""No two runs are equal, but gradients that reach other examples show the leak."""

UNCHANGEABLE: tuple[Case, ...] = (
    Case("padding alone", lambda: nn.Embedding(12, 6), lambda: torch.zeros(8, 5, dtype=torch.long)),
    Case("a batch of one", lambda: deep(nn.Tanh()), floats(1, 4)),
    Case("no tensor", lambda: Apply(lambda count: torch.ones(count, 2)), lambda: (8,)),
)
"""No example can be changed beside another one: could not look, and not clean."""
