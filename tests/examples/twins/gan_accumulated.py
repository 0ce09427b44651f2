"""The training of ``examples/gan.py`` with accumulated gradients, written by hand."""

from __future__ import annotations

import torch
from torch import nn

from examples.gan import EPOCHS, NOISE, adam, digits, judged, networks
from tests.examples.comparison import Record


def train(record: Record, n: int) -> nn.Module:
    data = digits()
    model = networks()
    generator, discriminator = model["generator"], model["discriminator"]
    generator_optimizer = adam(generator.parameters())
    discriminator_optimizer = adam(discriminator.parameters())
    for _ in range(EPOCHS):
        for batch, real in enumerate(data, 1):
            steps = batch % n == 0 or batch == len(data)
            share = (batch - 1) % n + 1 if batch == len(data) else n
            fake = generator(torch.randn(len(real), NOISE))
            loss = judged(discriminator(real), real=True) + judged(discriminator(fake.detach()), real=False)
            loss.backward()
            if steps:
                step(discriminator_optimizer, share)
            discriminator.requires_grad_(False)
            generator_loss = judged(discriminator(fake), real=True)
            generator_loss.backward()
            discriminator.requires_grad_(True)
            if steps:
                step(generator_optimizer, share)
            record(loss, generator_loss)
    return model


def step(optimizer: torch.optim.Optimizer, batches: int) -> None:
    """Step with the mean of the gradients of some batches."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.div_(batches)
    optimizer.step()
    optimizer.zero_grad()
