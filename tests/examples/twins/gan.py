"""The training of ``examples/gan.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn

from examples.gan import EPOCHS, LOG_EVERY, NOISE, adam, digits, judged, networks
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    data = digits()
    model = networks()
    generator, discriminator = model["generator"], model["discriminator"]
    generator_optimizer = adam(generator.parameters())
    discriminator_optimizer = adam(discriminator.parameters())
    for epoch in range(1, EPOCHS + 1):
        for batch, real in enumerate(data, 1):
            fake = generator(torch.randn(len(real), NOISE))
            discriminator_optimizer.zero_grad()
            loss = judged(discriminator(real), real=True) + judged(discriminator(fake.detach()), real=False)
            loss.backward()
            discriminator_optimizer.step()
            generator_optimizer.zero_grad()
            generator_loss = judged(discriminator(fake), real=True)
            generator_loss.backward()
            generator_optimizer.step()
            record(loss, generator_loss)
            if batch % LOG_EVERY == 0:
                print(
                    f"epoch {epoch}, batch {batch} of {len(data)}, "
                    f"discriminator {loss.item():.4g}, generator {generator_loss.item():.4g}"
                )
    return model
