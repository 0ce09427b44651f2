"""The training of ``examples/wgan_gp.py``, written by hand."""

from __future__ import annotations

import torch
from torch import nn

from examples.wgan_gp import (
    CRITIC_STEPS,
    EPOCHS,
    LOG_EVERY,
    NOISE,
    PENALTY,
    adam,
    circle,
    gradient_penalty,
    networks,
)
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    data = circle()
    model = networks()
    generator, critic = model["generator"], model["critic"]
    generator_optimizer, critic_optimizer = adam(generator.parameters()), adam(critic.parameters())
    for epoch in range(1, EPOCHS + 1):
        for batch, real in enumerate(data, 1):
            fake = generator(torch.randn(len(real), NOISE)).detach()
            loss = critic(fake).mean() - critic(real).mean() + PENALTY * gradient_penalty(critic, real, fake)
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
            record(loss)
            if batch % CRITIC_STEPS == 0:
                generator_loss = -critic(generator(torch.randn(len(real), NOISE))).mean()
                generator_optimizer.zero_grad()
                generator_loss.backward()
                generator_optimizer.step()
                record(generator_loss)
            if batch % LOG_EVERY == 0:
                print(
                    f"epoch {epoch}, batch {batch} of {len(data)}, "
                    f"critic {loss.item():.4g}, generator {generator_loss.item():.4g}"
                )
    return model
