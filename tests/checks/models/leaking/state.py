"""Leaks by writes in place and by state that lives longer than a row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, beside_batch_norm, deep, floats, net, with_lengths


class RowByRow(nn.Module):
    """Runs a cell over the rows, and keeps the hidden state from row to row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(1, 6)
        rows = []
        for row in x:
            hidden = self.cell(row[None], hidden)
            rows.append(hidden)
        return torch.cat(rows)


class KeptState(nn.Module):
    """Runs an LSTM over each sequence, from the state in which the one before it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)
        self.state: Any = None

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for sequence in x:
            out, state = self.rnn(sequence[None], self.state)
            self.state = tuple(part.detach() for part in state)
            rows.append(self.head(out[:, -1]))
        return torch.cat(rows)


class RunningMean(nn.Module):
    """Writes a buffer and reads it in the same forward."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class CachedByLength(nn.Module):
    """Keeps for each length what the first sequence of that length gave."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)
        self.cache: dict[int, Tensor] = {}

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        rows = []
        for row, length in zip(self.embed(x), lengths.tolist(), strict=True):
            context = self.cache.setdefault(length, row[:length].mean(0))
            rows.append(self.head(torch.tanh(row[0] + context)))
        return torch.stack(rows)


class OneListForAll(nn.Module):
    """Adds up in ``[zeros] * batch``: one tensor with many places."""

    def forward(self, x: Tensor) -> Tensor:
        states = [torch.zeros(x.shape[1])] * len(x)
        for state, row in zip(states, x, strict=True):
            state += row
        return x + torch.stack(states)


class StateOfOneSize(nn.Module):
    """Adds the state of a batch of eight, which each row has written into all places from its own on."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        for number, row in enumerate(x.detach()):
            self.state[number:] += 0.1 * row
        return x + self.state


def written_where_any_is_negative(x: Tensor) -> Tensor:
    """A mask of features is written for all rows."""
    out = x.clone()
    out[:, (x < -1).any(0)] = 0
    return out


class SetByTheFirstBatch(nn.Module):
    """A shift that the first batch sets, as in flows: where nothing was seen before, by the batch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(6))
        self.is_set = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_set:
            self.shift.data.copy_(x.detach().mean(0))
            self.is_set = True
        return x - self.shift


class ListOfRows(nn.Module):
    """Gives a list with a dict for each example; the loop adds to what the rows before it left."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        total = x.new_zeros(3)
        rows = []
        for row in self.linear(x):
            total = total + row
            rows.append({"logits": row + 0.1 * total})
        return rows


STATE = (
    Case("a hidden state from row to row", lambda: deep(RowByRow()), floats(6, 4), "body.block.part"),
    Case("an LSTM's state kept on the module", KeptState, floats(5, 3, 4)),
    Case("a buffer written and read", lambda: net(RunningMean()), floats(8, 4), "part"),
    Case("a cache by length alone", CachedByLength, with_lengths(8, 5)),
    Case("one tensor in all places of a list", lambda: net(OneListForAll()), floats(7, 4), "part"),
    Case("a buffer of the batch's size", lambda: net(StateOfOneSize()), floats(8, 4), "part"),
    Case("a shift set by the first batch", lambda: deep(SetByTheFirstBatch()), floats(8, 4), "body.block.part"),
    Case("a total in a list of rows", ListOfRows, floats(6, 4)),
    Case(
        "written into all rows, after a batch norm",
        lambda: beside_batch_norm(Apply(written_where_any_is_negative), before=False),
        floats(5, 4),
        "part",
    ),
)
