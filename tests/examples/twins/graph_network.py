"""The training of ``examples/graph_network.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Adam

from examples.graph_network import EPOCHS, Graph, GraphNetwork, Labels, graph
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    inputs, (nodes, groups), test = graph()
    model = GraphNetwork()
    optimizer = Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(*inputs)[nodes], groups)
        loss.backward()
        optimizer.step()
        record(loss)
        print(f"epoch {epoch}, loss {loss.item():.4g}")
        evaluate(model, inputs, test, epoch)
    return model


@torch.no_grad()
def evaluate(model: nn.Module, inputs: Graph, test: Labels, epoch: int) -> None:
    model.eval()
    nodes, groups = test
    prediction = model(*inputs)[nodes]
    loss = F.cross_entropy(prediction, groups).item()
    accuracy = (prediction.argmax(dim=1) == groups).float().mean().item()
    print(f"epoch {epoch}, test: loss {loss:.4g}, accuracy {accuracy:.4g}")
