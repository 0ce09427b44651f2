"""Clean nets for sequences: recurrent ones, bags of words, lists."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from tests.checks.cases import Case
from tests.checks.models.parts import floats, tokens, with_lengths


class Recurrent(nn.Module):
    """A recurrent layer over ``(B, T, F)``."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.rnn(x)[0])
        return logits


class TimeMajor(nn.Module):
    """Time first, from the loader on."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6)
        self.head = nn.Linear(6, 3)
        self.last = last

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        out = self.rnn(x)[0]
        if lengths is not None:
            out = out[lengths - 1, torch.arange(x.shape[1])]
        elif self.last:
            out = out[-1]
        logits: Tensor = self.head(out)
        return logits


class LearnedStart(nn.Module):
    """An LSTM that starts from a state that is learned, the same for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(2, 1, 1, 6))
        self.rnn = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden, cell = self.start.expand(-1, -1, len(x), -1).contiguous()
        out: Tensor = self.rnn(x, (hidden, cell))[0]
        return out


class Packed(nn.Module):
    """Packs by torch's own order, which is undone when it pads."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        logits: Tensor = self.head(out)
        return logits


class SortedAndRestored(nn.Module):
    """Sorts by length, packs, and puts the last states back."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        ordered, order = lengths.sort(descending=True)
        _, last = self.rnn(pack_padded_sequence(x[order], ordered, batch_first=True))
        logits: Tensor = self.head(last[0][order.argsort()])
        return logits


class MeanInside(nn.Module):
    """The mean of each sequence over its own steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(x.shape[1]) < lengths[:, None]
        mean = (self.embed(x) * inside[..., None]).sum(1) / lengths[:, None]
        logits: Tensor = self.head(torch.tanh(mean))
        return logits


class TokenByToken(nn.Module):
    """Tags of words by a small recurrent net."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 4, padding_idx=0)
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(self.rnn(self.embed(text))[0])
        return logits.flatten(0, 1)


class Bags(nn.Module):
    """A bag of words with the starts of the texts in one long row of words."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(12, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        inside = text > 0
        starts = F.pad(inside.sum(1).cumsum(0), (1, 0))[:-1]
        logits: Tensor = self.head(torch.tanh(self.bag(text[inside], starts)))
        return logits


class OfLists(nn.Module):
    """A list of sequences of different lengths, packed; a list of the same lengths comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, sequences: list[Tensor]) -> list[Tensor]:
        packed, _ = self.rnn(pack_sequence(sequences, enforce_sorted=False))
        out, lengths = pad_packed_sequence(packed, batch_first=True)
        return [self.head(row[:length]) for row, length in zip(out, lengths.tolist(), strict=True)]


class OfSets(nn.Module):
    """A list of sets, joined for one layer and split again."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        self.head = nn.Linear(6, 3)

    def forward(self, sets: list[Tensor]) -> Tensor:
        points = self.points(torch.cat(sets)).split([len(points) for points in sets])
        logits: Tensor = self.head(torch.stack([part.amax(0) for part in points]))
        return logits


def draw_list(examples: int = 8) -> tuple[list[Tensor]]:
    return ([torch.randn(2 + number % 3, 4) for number in range(examples)],)


SEQUENCES = (
    Case("an RNN", lambda: Recurrent(nn.RNN(4, 6, batch_first=True)), floats(8, 5, 4)),
    Case(
        "an LSTM of two layers with dropout",
        lambda: Recurrent(nn.LSTM(4, 6, 2, batch_first=True, dropout=0.2)),
        floats(8, 5, 4),
    ),
    Case("time-major outside", lambda: TimeMajor(last=False), floats(5, 8, 4), options={"batch_axis": 1}),
    Case("time-major in, batch first out", lambda: TimeMajor(last=True), floats(5, 8, 4), options={"batch_axis": 1}),
    Case(
        "time-major with lengths",
        lambda: TimeMajor(last=False),
        lambda: (torch.randn(5, 8, 4), torch.randint(1, 6, (8,))),
        options={"batch_axis": 1},
    ),
    Case("a learned first state", LearnedStart, floats(8, 5, 4)),
    Case("packed", Packed, with_lengths(8, 5)),
    Case("sorted by length and restored", SortedAndRestored, with_lengths(8, 5)),
    Case("means of each one's own steps", MeanInside, with_lengths(8, 5)),
    Case("tags in one long row", TokenByToken, tokens(8, 5)),
    Case("a bag of words", Bags, tokens(8, 5)),
    Case("a list in and a list out", OfLists, draw_list),
    Case("a list of sets", OfSets, draw_list),
)
