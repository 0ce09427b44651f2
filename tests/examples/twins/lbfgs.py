"""The training of ``examples/lbfgs.py``, written by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS

from examples.lbfgs import EPOCHS, network, waves
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    (inputs, targets), (test_inputs, test_targets) = waves()
    model = network()
    optimizer = LBFGS(model.parameters(), lr=0.8)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    for epoch in range(1, EPOCHS + 1):
        model.train()
        loss = optimizer.step(closure)
        record(loss)
        print(f"epoch {epoch}, loss {loss.item():.4g}")
        model.eval()
        with torch.no_grad():
            test_loss = F.mse_loss(model(test_inputs), test_targets)
        print(f"epoch {epoch}, test: loss {test_loss.item():.4g}")
    return model
