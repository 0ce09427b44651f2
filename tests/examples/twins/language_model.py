"""The training of ``examples/language_model.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from examples.language_model import (
    ACCUMULATED,
    EVAL_EVERY,
    GPT,
    LARGEST_NORM,
    LEARNING_RATE,
    LOG_EVERY,
    STEPS,
    next_character_loss,
    rate_factor,
    source,
    windows,
)
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    text, characters = source()
    train_data, valid_windows = windows(text[:-2000], seed=0), windows(text[-2000:], seed=1)
    valid_data = [next(valid_windows) for _ in range(10)]
    model = GPT(characters)
    optimizer = AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    scheduler = LambdaLR(optimizer, rate_factor)
    for step in range(1, STEPS + 1):
        inputs, targets = next(train_data)
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_character_loss(model(inputs), targets)
        (loss / ACCUMULATED).backward()
        record(loss)
        if step % LOG_EVERY == 0:
            print(f"step {step}, loss {loss.item():.4g}, rate {scheduler.get_last_lr()[0]:.4g}")
        if step % ACCUMULATED == 0:
            nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        if step % EVAL_EVERY == 0:
            model.eval()
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                losses = [next_character_loss(model(inputs), targets) for inputs, targets in valid_data]
            model.train()
            print(f"step {step}, valid: loss {torch.stack(losses).mean().item():.4g}")
    return model
