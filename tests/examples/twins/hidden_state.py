"""The training of ``examples/hidden_state.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import SGD

from examples.hidden_state import (
    EPOCHS,
    LARGEST_NORM,
    LEARNING_RATE,
    LOG_EVERY,
    Reader,
    next_character_loss,
    pieces,
    plateau,
    source,
)
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    text, characters = source()
    train_data, valid_data = pieces(text[:-3000], columns=16), pieces(text[-3000:], columns=8)
    model = Reader(characters)
    optimizer = SGD(model.parameters(), lr=LEARNING_RATE)
    scheduler = plateau(optimizer)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        hidden = None
        for batch, (inputs, targets) in enumerate(train_data, 1):
            optimizer.zero_grad()
            prediction, (state, cell) = model(inputs, hidden)
            hidden = state.detach(), cell.detach()
            loss = next_character_loss(prediction, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()
            record(loss)
            if batch % LOG_EVERY == 0:
                rate = scheduler.get_last_lr()[0]
                print(f"epoch {epoch}, batch {batch} of {len(train_data)}, loss {loss.item():.4g}, rate {rate:.4g}")
        model.eval()
        hidden, valid_loss, length = None, 0.0, 0
        with torch.no_grad():
            for inputs, targets in valid_data:
                prediction, hidden = model(inputs, hidden)
                valid_loss += len(inputs) * next_character_loss(prediction, targets).item()
                length += len(inputs)
        print(f"epoch {epoch}, valid: loss {valid_loss / length:.4g}")
        scheduler.step(valid_loss / length)
    return model
