"""Clean nets whose inputs or outputs are more than a tensor: graphs, dicts, tuples, dataclasses, lists."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tests.checks.cases import Case
from tests.checks.models.graphs import GraphNet, call_folded, draw_graphs
from tests.checks.models.parts import Apply, floats, with_lengths


class Answer(NamedTuple):
    logits: Tensor
    hidden: Tensor


@dataclass
class Boxes:
    corners: Tensor
    scores: Tensor


@dataclass
class Text:
    words: Tensor
    mask: Tensor


class MeanGraph(nn.Module):
    """The mean of each graph's nodes, and how much each node counts by a softmax inside of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        graphs = int(graph[-1]) + 1
        weights = self.score(nodes).exp()
        total = weights.new_zeros(graphs, 1).index_add(0, graph, weights)
        return nodes.new_zeros(graphs, nodes.shape[1]).index_add(0, graph, nodes * weights / total[graph])


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Answer:
        hidden = torch.tanh(self.first(x))
        return Answer(self.head(hidden), hidden)


class Detector(nn.Module):
    """Boxes for each image, as a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)

    def forward(self, x: Tensor) -> Boxes:
        corners, scores = self.conv(x).flatten(2).split([4, 1], 1)
        return Boxes(corners.mT, scores.squeeze(1))


class Flags(nn.Module):
    """Takes what is not a tensor too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor | None, scale: float, how: str) -> dict[str, Tensor | str]:
        logits: Tensor = self.linear(x if mask is None else x * mask)
        return {"logits": logits * scale, "how": how}


class Nested(nn.Module):
    """Dicts in a dict in, tuples out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.linear = nn.Linear(4, 6)

    def forward(self, parts: dict[str, dict[str, Tensor]]) -> tuple[Tensor, tuple[Tensor, ...]]:
        text = self.embed(parts["text"]["words"]).mean(1)
        table = self.linear(parts["table"]["numbers"])
        return text * table, (text, table)


class OfText(nn.Module):
    """Words and a mask as attributes of one object."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)

    def forward(self, text: Text | SimpleNamespace) -> Tensor:
        return torch.tanh((self.embed(text.words) * text.mask[..., None]).sum(1))


class Prototypes(nn.Module):
    """Distances to prototypes, and the prototypes: as many as there are examples."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"distances": torch.cdist(x, self.points), "points": self.points}


class Labels(nn.Module):
    """Logits with gradient, and labels without."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        logits = self.linear(x)
        return {"labels": logits.argmax(1), "sure": logits.amax(1) > 0.5, "logits": logits}


class GivesItsInput(nn.Module):
    """Gives its input beside the logits, and a prior that is the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.prior = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, self.linear(x), self.prior.expand(len(x), -1)


class Masked(nn.Module):
    """Logits with minus infinity for what is not allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        logits: Tensor = self.linear(x)
        return logits.masked_fill(~allowed, float("-inf"))


class OneByOne(nn.Module):
    """Reads each sequence by itself, as far as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([self.rnn(row[None, :length])[0][:, -1] for row, length in zip(x, lengths, strict=True)])


class WordsInside(nn.Module):
    """Tags for the words that there are, in one row, and a tag for each text."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        inside = torch.arange(x.shape[1]) < lengths[:, None]
        tags = self.head(torch.tanh(self.embed(x)))
        return {"texts": tags[:, 0], "words": tags[inside]}


def draw_text() -> tuple[Tensor, Tensor]:
    mask = torch.ones(8, 5)
    mask[:, 3:] = torch.randint(0, 2, (8, 2))
    return torch.randint(0, 12, (8, 5)), mask > 0


STRUCTURES = (
    Case("graphs folded by the loader", GraphNet, draw_graphs, options={"call": call_folded}),
    Case("graphs pooled by attention", lambda: GraphNet(pool=MeanGraph()), draw_graphs, options={"call": call_folded}),
    Case("a named tuple", Named, floats(8, 4)),
    Case("a dataclass", Detector, floats(7, 1, 4, 4)),
    Case(
        "a dict with None, a number and a word",
        Flags,
        lambda: {"x": torch.randn(8, 4), "mask": None, "scale": 2.0, "how": "scaled"},
    ),
    Case(
        "dicts inside of a dict",
        Nested,
        lambda: ({"text": {"words": torch.randint(0, 12, (8, 5))}, "table": {"numbers": torch.randn(8, 4)}},),
    ),
    Case("a dataclass in", OfText, lambda: (Text(*draw_text()),)),
    Case("as many prototypes as examples", Prototypes, floats(8, 4)),
    Case("labels alone", lambda: nn.Sequential(nn.Linear(4, 3), Apply(lambda x: x.argmax(1))), floats(8, 4)),
    Case("no parameters", lambda: Apply(lambda x: torch.tanh(x).softmax(-1)), floats(8, 4)),
    Case("its input given back", GivesItsInput, floats(8, 4)),
    Case("minus infinity in logits", Masked, lambda: (torch.randn(8, 4), torch.rand(8, 5) > 0.3)),
    Case("labels beside logits", Labels, floats(8, 4)),
    Case("words inside, in one row", WordsInside, with_lengths(8, 5)),
    Case("one after the other", OneByOne, with_lengths(5, 4)),
)
