"""The training of ``examples/vae.py``, written by hand."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
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
        model.eval()
        random_state = torch.get_rng_state()  # so that evaluating does not change the training
        with torch.no_grad():
            test_loss = sum(negative_bound(model(images), images).item() for images in test_data)
            save_pictures(model.decoder, codes, folder / f"epoch_{epoch}.pgm")
        torch.set_rng_state(random_state)
        print(f"epoch {epoch}, test: loss {test_loss / sum(map(len, test_data)):.4g}")
    return model
