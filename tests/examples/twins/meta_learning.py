"""The training of ``examples/meta_learning.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Adam

from examples.meta_learning import LOG_EVERY, STEPS, batches, loss_after_a_step, network
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    train_data, test_data = batches(seed=0, n=STEPS), batches(seed=1, n=10)
    model = network()
    optimizer = Adam(model.parameters(), lr=5e-3)

    def evaluate() -> float:
        losses = [loss_after_a_step(model, task).item() for tasks in test_data for task in tasks]
        return sum(losses) / len(losses)

    print(f"step 0, test: loss {evaluate():.4g}")
    for step, tasks in enumerate(train_data, 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for task in tasks:
            loss = loss_after_a_step(model, task) / len(tasks)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        record(total)
        if step % LOG_EVERY == 0:
            print(f"step {step}, loss {total.item():.4g}")
    print(f"step {STEPS}, test: loss {evaluate():.4g}")
    return model
