"""The task of every file in this folder: a small network that reads scans of handwritten digits."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

Loader = DataLoader[tuple[Tensor, ...]]

EPOCHS = 30  # at most
PATIENCE = 3  # epochs without a lower validation loss, after which the training ends
LARGEST_NORM = 1.0  # of the gradient
LEARNING_RATE = 1e-2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def loaders() -> tuple[Loader, Loader]:
    """Return 1,347 digits to train on, in a new random order each epoch, and 450 to validate with."""
    pixels, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.from_numpy(pixels).float() / 16, torch.from_numpy(labels))
    train, valid = random_split(digits, [1347, 450], torch.Generator().manual_seed(0))
    shuffling = torch.Generator().manual_seed(0)
    return DataLoader(train, batch_size=64, shuffle=True, generator=shuffling), DataLoader(valid, batch_size=256)


def report(epoch: int, loss: float, accuracy: float) -> None:
    print(f"epoch {epoch:2}: valid loss {loss:.4f}, accuracy {accuracy:.2%}")
