"""The training of ``examples/contrastive.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader

from examples.contrastive import EPOCHS, LOG_EVERY, Pair, Siamese, accuracy, contrastive_loss, pairs
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = pairs()
    model = Siamese()
    optimizer = Adam(model.parameters(), lr=2e-3)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch, ((first, second), same) in enumerate(train_data, 1):
            optimizer.zero_grad()
            loss = contrastive_loss(model(first, second), same)
            loss.backward()
            optimizer.step()
            record(loss)
            if batch % LOG_EVERY == 0:
                print(f"epoch {epoch}, batch {batch} of {len(train_data)}, loss {loss.item():.4g}")
        evaluate(model, test_data, epoch)
    return model


@torch.no_grad()
def evaluate(model: nn.Module, data: DataLoader[Pair], epoch: int) -> None:
    model.eval()
    test_loss, right, examples = 0.0, 0.0, 0
    for (first, second), same in data:
        distance = model(first, second)
        test_loss += len(same) * contrastive_loss(distance, same).item()
        right += accuracy(distance, same).sum().item()
        examples += len(same)
    print(f"epoch {epoch}, test: loss {test_loss / examples:.4g}, accuracy {right / examples:.4g}")
