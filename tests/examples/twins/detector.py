"""The training of ``examples/detector.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import StepLR

from examples.detector import EPOCHS, Batch, Detector, found, squares
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = squares()
    model = Detector()
    optimizer = Adam(model.parameters(), lr=0.01)
    schedule = StepLR(optimizer, step_size=5, gamma=0.3)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for number, (images, targets) in enumerate(train_data, 1):
            losses = model(images, targets)
            loss = sum(losses.values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            record(loss)
            if number % 6 == 0:
                parts = ", ".join(f"{name} {value.item():.4g}" for name, value in losses.items())
                print(f"epoch {epoch}, batch {number} of {len(train_data)}, loss {loss.item():.4g}, {parts}")
        schedule.step()
        evaluate(model, test_data, epoch)
    return model


@torch.no_grad()
def evaluate(model: nn.Module, data: list[Batch], epoch: int) -> None:
    model.eval()
    share = sum(found(model(images), targets).item() for images, targets in data) / len(data)
    print(f"epoch {epoch}, test: found {share:.4g}")
