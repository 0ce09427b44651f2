"""accelerate: the bare loop, whose model and optimizer have been prepared for a device; it has no hook points."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F

from benchmarks.mlp import Clocked, sgd
from benchmarks.subscribers import subscribers


def train(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
    watching = subscribers(count, after="step(self, loss)")
    hooks = [one.step for one in watching]
    accelerator = Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, sgd(model.parameters()))
    for inputs, targets in batches:
        loss = F.cross_entropy(prepared(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        for hook in hooks:
            hook(loss)
    return watching
