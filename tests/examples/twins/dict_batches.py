"""The training of ``examples/dict_batches.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader

from examples.dict_batches import EPOCHS, LOG_EVERY, Example, accuracy, network, sequences
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = sequences()
    model = network()
    optimizer = AdamW(model.parameters(), lr=5e-3)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for number, batch in enumerate(train_data, 1):
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            record(loss)
            if number % LOG_EVERY == 0:
                print(f"epoch {epoch}, batch {number} of {len(train_data)}, loss {loss.item():.4g}")
        evaluate(model, test_data, epoch)
    return model


@torch.no_grad()
def evaluate(model: nn.Module, data: DataLoader[Example], epoch: int) -> None:
    model.eval()
    test_loss, right, examples = 0.0, 0.0, 0
    for batch in data:
        outputs = model(**batch)
        test_loss += len(batch["labels"]) * outputs.loss.item()
        right += accuracy(outputs, batch).sum().item()
        examples += len(batch["labels"])
    print(f"epoch {epoch}, test: loss {test_loss / examples:.4g}, accuracy {right / examples:.4g}")
