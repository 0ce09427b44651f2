"""Graphs of four nodes: one row of nodes and of edges for each graph, or folded into one large graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NODES = 4


def draw_graphs(graphs: int = 8, edges: int = 6) -> tuple[Tensor, Tensor]:
    """Nodes ``(graphs, 4, 3)``, and edges ``(graphs, edges, 2)`` as numbers of a graph's own nodes."""
    return torch.randn(graphs, NODES, 3), torch.randint(0, NODES, (graphs, edges, 2))


def fold(nodes: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make one large graph: nodes, edges ``(2, all edges)`` and the graph of each node."""
    numbers = torch.arange(len(nodes))
    folded = edges + NODES * numbers[:, None, None]
    return nodes.flatten(0, 1), folded.flatten(0, 1).t(), numbers.repeat_interleave(NODES)


def call_folded(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Any:
    """Call a model that takes one large graph, as loaders of graphs make it."""
    return model(*fold(*batch))


class Pass(nn.Module):
    """One round of messages along the edges."""

    def __init__(self, ins: int = 3) -> None:
        super().__init__()
        self.message = nn.Linear(ins, 6)
        self.own = nn.Linear(ins, 6)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        start, end = edges
        return torch.tanh(self.own(nodes).index_add(0, end, self.message(nodes)[start]))


class Pool(nn.Module):
    """The sum of each graph's nodes."""

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        graphs = int(graph[-1]) + 1
        return nodes.new_zeros(graphs, nodes.shape[1]).index_add(0, graph, nodes)


class GraphNet(nn.Module):
    """Messages, a pool and a head: clean with the parts above."""

    def __init__(self, passing: nn.Module | None = None, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.passing = Pass() if passing is None else passing
        self.pool = Pool() if pool is None else pool
        self.head = nn.Linear(6, 2)

    def forward(self, nodes: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.passing(nodes, edges), graph))
        return logits
