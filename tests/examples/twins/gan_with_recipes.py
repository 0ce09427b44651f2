"""The training of ``examples/gan.py`` with accumulated gradients and in bfloat16, written by hand."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from examples.gan import EPOCHS, NOISE, adam, digits, judged, networks
from tests.examples.comparison import Record


def train(record: Record, accumulated: int = 1, bfloat16: bool = False) -> nn.Module:
    data = digits()
    model = networks()
    generator, discriminator = model["generator"], model["discriminator"]
    generator_optimizer = adam(generator.parameters())
    discriminator_optimizer = adam(discriminator.parameters())
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
    for _ in range(EPOCHS):
        for batch, real in enumerate(data, 1):
            ends = batch % accumulated == 0 or batch == len(data)
            gathered = (batch - 1) % accumulated + 1
            with autocast:
                fake = generator(torch.randn(len(real), NOISE))
                loss = judged(discriminator(real), real=True) + judged(discriminator(fake.detach()), real=False)
            loss.backward()
            if ends:
                step(discriminator_optimizer, gathered)
            discriminator.requires_grad_(False)  # the generator's loss must not add to gradients gathered for it
            with autocast:
                generator_loss = judged(discriminator(fake), real=True)
            generator_loss.backward()
            discriminator.requires_grad_(True)
            if ends:
                step(generator_optimizer, gathered)
            record(loss, generator_loss)
    return model


def step(optimizer: Optimizer, gathered: int) -> None:
    """Step with the mean of the gradients of some batches, which are their sum."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.div_(gathered)
    optimizer.step()
    optimizer.zero_grad()
