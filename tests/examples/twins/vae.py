"""The training of ``examples/vae.py``, written by hand: its evaluation draws the noise of the codes.

In the form of ``train`` and ``test`` in ``vae/main.py`` of pytorch/examples.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Adam

from examples.vae import CODE, EPOCHS, LOG_EVERY, VAE, digits, negative_bound, save_pictures
from tests.examples.comparison import Record


def train(record: Record, folder: Path) -> nn.Module:
    train_data, test_data = digits()
    codes = torch.randn(16, CODE)
    model = VAE()
    optimizer = Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch, images in enumerate(train_data, 1):
            optimizer.zero_grad()
            loss = negative_bound(model(images), images)
            loss.backward()
            optimizer.step()
            record(loss)
            if batch % LOG_EVERY == 0:
                print(f"epoch {epoch}, batch {batch} of {len(train_data)}, loss {loss.item():.4g}")
        print(f"epoch {epoch}, test: loss {evaluate(model, test_data):.4g}")
        with torch.no_grad():
            save_pictures(model.decoder, codes, folder / f"epoch_{epoch}.pgm")
    return model


@torch.no_grad()
def evaluate(model: nn.Module, data: list[Tensor]) -> float:
    model.eval()
    return sum(negative_bound(model(images), images).item() for images in data) / sum(map(len, data))
