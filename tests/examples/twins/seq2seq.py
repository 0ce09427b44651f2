"""The training of ``examples/seq2seq.py``, written by hand.

In the form of ``run_epoch`` in ``the_annotated_transformer.py`` of harvardnlp/annotated-transformer at 0a91a25, where a
loss is a sum over tokens, divided by their number.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from examples.seq2seq import EPOCHS, LOG_EVERY, PAD, Batch, Translator, loaders, loss_per_token, rate_factor
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = loaders()
    model = Translator()
    optimizer = Adam(model.parameters(), lr=1e-2)
    scheduler = LambdaLR(optimizer, rate_factor)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        total_loss, total_tokens = 0.0, 0
        for batch, ((source, written), targets) in enumerate(train_data, 1):
            tokens = int((targets != PAD).sum())
            loss = loss_per_token(model(source, written), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            record(loss)
            if batch % LOG_EVERY == 0:
                rate = scheduler.get_last_lr()[0]
                print(f"epoch {epoch}, batch {batch} of {len(train_data)}, loss {loss.item():.4g}, rate {rate:.4g}")
            scheduler.step()
            total_loss += loss.item() * tokens
            total_tokens += tokens
        print(f"epoch {epoch}, training: loss {total_loss / total_tokens:.4g}")
        print(f"epoch {epoch}, test: loss {evaluate(model, test_data):.4g}")
    return model


@torch.no_grad()
def evaluate(model: nn.Module, data: DataLoader[Batch]) -> float:
    model.eval()
    total_loss, total_tokens = 0.0, 0
    for (source, written), targets in data:
        tokens = int((targets != PAD).sum())
        total_loss += loss_per_token(model(source, written), targets).item() * tokens
        total_tokens += tokens
    return total_loss / total_tokens
