"""The training of ``examples/mnist.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Adadelta
from torch.optim.lr_scheduler import StepLR

from examples.mnist import EPOCHS, GAMMA, LEARNING_RATE, LOG_EVERY, accuracy, digits, network
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = digits()
    model = network()
    optimizer = Adadelta(model.parameters(), lr=LEARNING_RATE)
    scheduler = StepLR(optimizer, step_size=1, gamma=GAMMA)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch, (images, labels) in enumerate(train_data, 1):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            record(loss)
            if batch % LOG_EVERY == 0:
                print(f"epoch {epoch}, batch {batch} of {len(train_data)}, loss {loss.item():.4g}")
        scheduler.step()
        model.eval()
        test_loss, right, examples = 0.0, 0.0, 0
        with torch.no_grad():
            for images, labels in test_data:
                prediction = model(images)
                test_loss += F.cross_entropy(prediction, labels, reduction="sum").item()
                right += accuracy(prediction, labels).sum().item()
                examples += len(labels)
        print(f"epoch {epoch}, test: loss {test_loss / examples:.4g}, accuracy {right / examples:.4g}")
    return model
