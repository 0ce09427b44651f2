"""The training as a bare loop of PyTorch."""

import torch
from digits import EPOCHS, LARGEST_NORM, LEARNING_RATE, PATIENCE, Loader, loaders, network, report
from torch import nn
from torch.nn import functional as F


@torch.no_grad()
def validate(model: nn.Module, valid_data: Loader) -> tuple[float, float]:
    loss = right = examples = 0.0
    model.eval()
    for inputs, targets in valid_data:
        prediction = model(inputs)
        loss += F.cross_entropy(prediction, targets, reduction="sum").item()
        right += (prediction.argmax(dim=1) == targets).sum().item()
        examples += len(targets)
    model.train()
    return loss / examples, right / examples


def train(model: nn.Module, train_data: Loader, valid_data: Loader) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    best, waited = float("inf"), 0
    model.train()
    for epoch in range(1, EPOCHS + 1):
        for inputs, targets in train_data:
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()
            optimizer.zero_grad()
        valid_loss, accuracy = validate(model, valid_data)
        report(epoch, valid_loss, accuracy)
        best, waited = (valid_loss, 0) if valid_loss < best else (best, waited + 1)
        if waited == PATIENCE:
            break


if __name__ == "__main__":
    train(network(), *loaders())
