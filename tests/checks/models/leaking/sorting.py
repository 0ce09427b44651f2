"""Leaks by sorting, top-k and other orders of the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, beside_batch_norm, deep, floats, net, with_lengths


class ExpertChoice(nn.Module):
    """Each expert takes the three rows that it likes most."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x).softmax(-1)
        out = x
        for expert, score in zip(self.experts, scores.unbind(1), strict=True):
            chosen = score.topk(3).indices
            out = out.index_add(0, chosen, expert(x[chosen]) * score[chosen, None])
        return out


class Capacity(nn.Module):
    """Rows choose an expert, which takes the first three that come."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        choice = self.router(x).argmax(-1)
        out = x
        for number, expert in enumerate(self.experts):
            mine = choice == number
            taken = mine & (mine.cumsum(0) <= 3)
            out = out + expert(x) * taken[:, None]
        return out


class SortedByLength(nn.Module):
    """Sorts by length and then applies the same order once more, not its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True, stable=True)
        out = self.rnn(x[order])[0][:, -1]
        logits: Tensor = self.head(out[order])
        return logits


class MixedUp(nn.Module):
    """Mixes each hidden row with another one while it is trained."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.7 * x + 0.3 * x[torch.randperm(len(x))] if self.training else x


def counted(x: Tensor) -> Tensor:
    """Scale each row by how many are equal to it, which only equal rows show."""
    return x * (x[:, None] == x).all(-1).sum(1, keepdim=True)


SORTING = (
    Case("sorted and left so", lambda: deep(Apply(lambda x: x.sort(0).values)), floats(8, 4), "body.block.part"),
    Case("experts that choose their rows", lambda: deep(ExpertChoice()), floats(8, 4), "body.block.part"),
    Case("experts with a capacity", lambda: net(Capacity()), floats(16, 4), "part"),
    Case("sorted by length twice", SortedByLength, with_lengths(8, 5)),
    Case("hidden rows mixed up", lambda: deep(MixedUp()), floats(8, 4), "body.block.part", ("train",)),
    Case("rows rolled", lambda: deep(Apply(lambda x: x.roll(1, 0))), floats(7, 4), "body.block.part"),
    Case("scaled by how many rows are equal", lambda: deep(Apply(counted)), floats(8, 4), "body.block.part"),
    Case(
        "the median of the batch after a batch norm",
        lambda: beside_batch_norm(Apply(lambda x: x - x.median(0).values), before=False),
        floats(7, 4),
        "part",
    ),
)
