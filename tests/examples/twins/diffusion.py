"""The training of ``examples/diffusion.py``, written by hand.

In the form of ``Trainer.train`` in ``denoising_diffusion_pytorch/denoising_diffusion_pytorch.py`` of
lucidrains/denoising-diffusion-pytorch at 7897ddb, on one device, and with an average of each step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Adam

from examples.diffusion import DECAY, LARGEST_NORM, LOG_EVERY, SAMPLE_EVERY, STEPS, Diffusion, batches, show
from tests.examples.comparison import Record


def train(record: Record) -> tuple[nn.Module, nn.Module]:
    data = cycle()
    model = Diffusion()
    optimizer = Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    average = copy.deepcopy(model)
    step = 0
    while step < STEPS:
        loss = model(next(data))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        record(loss)
        with torch.no_grad():
            for averaged, weights in zip(average.parameters(), model.parameters(), strict=True):
                averaged.lerp_(weights, 1 - DECAY)
        if step % LOG_EVERY == 0:
            print(f"step {step}, loss {loss.item():.4g}")
        if step % SAMPLE_EVERY == 0:
            average.eval()
            show(average, step)
    return model, average


def cycle() -> Iterator[Tensor]:
    data = batches()
    while True:
        yield from data
