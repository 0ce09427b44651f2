"""Leaks by indices and packing: a row is looked up, or put back, in the wrong place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from tests.checks.cases import Case
from tests.checks.models.graphs import NODES, GraphNet, Pass, call_folded, draw_graphs
from tests.checks.models.parts import deep, draw_tokens, floats, with_lengths


class PackedAndSorted(nn.Module):
    """Sorts by length before it packs, and gives the rows back in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        ordered, order = lengths.sort(descending=True)
        packed = pack_padded_sequence(x[order], ordered, batch_first=True)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        logits: Tensor = self.head(out)
        return logits


class PackedData(nn.Module):
    """Cuts the data of a packed sequence into examples, though it is ordered by time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.rnn = nn.GRU(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        packed, _ = self.rnn(pack_sequence([self.embed(sequence) for sequence in sequences], enforce_sorted=False))
        rows = packed.data.split([len(sequence) for sequence in sequences])
        logits: Tensor = self.head(torch.stack([row[-1] for row in rows]))
        return logits


class LastStep(nn.Module):
    """Takes the rows ``lengths - 1`` where the steps ``lengths - 1`` of the rows are meant."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.rnn(x)[0][lengths - 1].mean(1))
        return logits


class ScatteredByChoice(nn.Module):
    """Puts each row where its expert's number says: along the batch, not along the experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        choice = self.router(x).argmax(-1, keepdim=True)
        return x.scatter_add(0, choice.expand_as(x), x)


class WrongOffsets(nn.Module):
    """A bag of words that takes the ends of the texts for their starts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.randn(12, 6))

    def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(text.shape[1]) < lengths[:, None]
        starts = torch.cat([lengths.new_zeros(1), lengths[1:].cumsum(0)])
        return F.embedding_bag(text[inside], self.words, starts.clamp(max=int(inside.sum())))


class BagNet(nn.Module):
    """A net over bags of words."""

    def __init__(self, bag: nn.Module) -> None:
        super().__init__()
        self.bag = bag
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.bag(text, lengths))
        return logits


class WrongGraph(nn.Module):
    """Adds nodes up by their number inside of a graph."""

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        graphs = int(graph[-1]) + 1
        return nodes.new_zeros(graphs, nodes.shape[1]).index_add(0, torch.arange(len(nodes)) % graphs, nodes)


class PassInTheFirst(Pass):
    """Messages that are all between nodes of the first graph: the edges' numbers are not counted on."""

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        passed: Tensor = super().forward(nodes.flatten(0, 1), edges.flatten(0, 1).t())
        rows: Tensor = passed.unflatten(0, (-1, NODES))
        return rows


class RowsOfGraphs(nn.Module):
    """A net for graphs with a row of nodes for each."""

    def __init__(self) -> None:
        super().__init__()
        self.passing = PassInTheFirst()
        self.head = nn.Linear(6, 2)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = self.head(self.passing(nodes, edges).sum(1))
        return logits


class Neighbours(nn.Module):
    """The mean of the two nearest points, of all clouds of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        points = x.flatten(0, 1)
        near = torch.cdist(points, points).topk(3, largest=False).indices[:, 1:]
        return points[near].mean(1).view_as(x)


class LabelsForRows(nn.Module):
    """Conditions on the row of the batch that has the label's number, not on the row of the table."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.table = nn.Embedding(5, 6)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        out: Tensor = self.first(x) + self.table(label)[label]
        return out


class SetsSplitWrongly(nn.Module):
    """Joins a list of sets for one layer, and splits it at the lengths in the other order."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, sets: list[Tensor]) -> Tensor:
        lengths = [len(points) for points in sets]
        points = self.points(torch.cat(sets)).split(lengths[::-1])
        logits: Tensor = self.head(torch.stack([part.amax(0) for part in points]))
        return logits


def draw_list(examples: int = 8) -> tuple[list[Tensor]]:
    return ([torch.randn(2 + number % 3, 4) for number in range(examples)],)


def draw_bags() -> tuple[Tensor, Tensor]:
    text = draw_tokens(8, 6)
    return text.clamp(min=1), text.count_nonzero(1)


INDICES = (
    Case("packed by length and left so", PackedAndSorted, with_lengths(8, 5)),
    Case("packed data cut as if ordered by example", PackedData, draw_list),
    Case("rows taken for last steps", LastStep, with_lengths(8, 5)),
    Case("rows scattered along the batch", lambda: deep(ScatteredByChoice()), floats(8, 4), "body.block.part"),
    Case("ends of texts for their starts", lambda: BagNet(WrongOffsets()), draw_bags, "bag"),
    Case(
        "nodes added to the wrong graph",
        lambda: GraphNet(pool=WrongGraph()),
        draw_graphs,
        "pool",
        options={"call": call_folded},
    ),
    Case("edges of all graphs in the first", RowsOfGraphs, draw_graphs, "passing"),
    Case("neighbours in other clouds", lambda: deep(Neighbours()), floats(6, 5, 4), "body.block.part"),
    Case("sets split at the wrong lengths", SetsSplitWrongly, draw_list),
    Case("labels taken for rows", LabelsForRows, lambda: (torch.randn(8, 4), torch.randint(0, 5, (8,)))),
)
