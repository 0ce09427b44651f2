"""A graph network that labels the nodes of a graph of which few are labelled, as Kipf and Welling's GCN does.

    python examples/graph_network.py

The nodes are in three groups, and an edge is more common within a group. The whole graph is one batch: its inputs are
the features of the nodes and the edges, its targets the nodes with a label. So each epoch is one step, and the batch
counts as many examples as there are labels in it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 40
NODES, GROUPS, FEATURES = 150, 3, 16

Graph = tuple[Tensor, Tensor]  # the features of the nodes, and the edges: two rows, from and to
Labels = tuple[Tensor, Tensor]  # nodes, and the group of each


class Convolution(nn.Linear):
    """The mean of what a node and its neighbours send."""

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:  # type: ignore[override]
        sent = super().forward(nodes)
        sources, receivers = edges
        number = torch.ones(len(nodes)).index_add(0, receivers, torch.ones(len(receivers)))
        return sent.index_add(0, receivers, sent[sources]) / number.unsqueeze(1)


class GraphNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Convolution(FEATURES, 16), Convolution(16, GROUPS)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = F.dropout(self.first(nodes, edges).relu(), 0.5, self.training)
        scores: Tensor = self.second(hidden, edges)
        return scores


def graph() -> tuple[Graph, Labels, Labels]:
    """Return a graph, labels of some nodes to train on, and those of all others to test with."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(NODES) % GROUPS
    is_within = groups.unsqueeze(0) == groups.unsqueeze(1)
    is_edge = torch.rand(NODES, NODES, generator=generator) < torch.where(is_within, 0.1, 0.01)
    edges = (is_edge | is_edge.T).fill_diagonal_(False).nonzero().T
    features = torch.randn(NODES, FEATURES, generator=generator)
    features[:, :GROUPS] += F.one_hot(groups, GROUPS)
    train, test = torch.arange(NODES).split([15, NODES - 15])
    return (features, edges), (train, groups[train]), (test, groups[test])


def loss_of_labelled(prediction: Tensor, targets: Labels) -> Tensor:
    nodes, groups = targets
    return F.cross_entropy(prediction[nodes], groups)


def accuracy(prediction: Tensor, targets: Labels) -> Tensor:
    nodes, groups = targets
    return (prediction[nodes].argmax(dim=1) == groups).float().mean()


class LabelledNodes(TrainManager):
    def get_true_batch_size(self, targets: Labels) -> int:
        return len(targets[1])


def manager() -> TrainManager:
    inputs, train, test = graph()
    return LabelledNodes(
        model=GraphNetwork(),
        loss=loss_of_labelled,
        optimizer=lambda parameters: Adam(parameters, lr=0.01, weight_decay=5e-4),
        train_data=[(inputs, train)],
        eval_data={"test": [(inputs, test)]},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[Log(every=1, counts="epoch", rate=None), Metrics(eval={"accuracy": accuracy})],
    )


def main() -> None:
    """Train, and print how many of the nodes without a label are put into their group."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"test accuracy {result.metrics['test']['accuracy']:.1%}")


if __name__ == "__main__":
    main()
