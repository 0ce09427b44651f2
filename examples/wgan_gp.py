"""A Wasserstein GAN with gradient penalty: gradients of gradients, and a generator that is trained less often.

    python examples/wgan_gp.py

The points to be made lie on a circle. Gulrajani et al. 2017, "Improved training of Wasserstein GANs", arXiv:1704.00028.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.utils.data import DataLoader

from train_manager import TrainManager
from train_manager.extensions import Log

EPOCHS = 40
NOISE = 4
CRITIC_STEPS = 5  # for each step of the generator
PENALTY = 1.0
LOG_EVERY = 10

adam = partial(Adam, lr=2e-3, betas=(0.5, 0.9))


def networks() -> nn.ModuleDict:
    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))

    return nn.ModuleDict({"generator": network(NOISE, 2), "critic": network(2, 1)})


def circle() -> DataLoader[Tensor]:
    angles = torch.linspace(0, 2 * math.pi, 1281)[1:]
    points = torch.stack([angles.cos(), angles.sin()], dim=1)
    return DataLoader(points, batch_size=64, shuffle=True)  # type: ignore[arg-type]


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    """Return how far the critic's slope is from 1, between real points and made ones."""
    between = (real + torch.rand(len(real), 1) * (fake - real)).requires_grad_()
    (slopes,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    length: Tensor = slopes.norm(dim=1)
    return (length - 1).square().mean()


class WGAN(TrainManager):
    """Train the critic on every batch, and the generator on every fifth."""

    def train_batch(self, inputs: Tensor, batch_num: int, model: nn.ModuleDict) -> None:
        generator, critic = model["generator"], model["critic"]
        fake = generator(torch.randn(len(inputs), NOISE)).detach()
        loss = critic(fake).mean() - critic(inputs).mean() + PENALTY * gradient_penalty(critic, inputs, fake)
        self.update(loss, optimizer="critic")
        if batch_num % CRITIC_STEPS == 0:
            self.update(-critic(generator(torch.randn(len(inputs), NOISE))).mean(), optimizer="generator")


def manager() -> TrainManager:
    return WGAN(
        model=networks(),
        optimizer={"generator": adam, "critic": adam},
        train_data=circle(),
        epochs=EPOCHS,
        extensions=[Log(every=LOG_EVERY, show="losses", counts=("epoch", "batch"), rate=None)],
    )


def main() -> None:
    """Train, and print how far from the middle the made points are; on the circle it is 1."""
    torch.manual_seed(0)
    tm = manager()
    tm.train()
    with tm.mode(training=False):
        radius = tm.model["generator"](torch.randn(1000, NOISE)).norm(dim=1)
    print(f"radius {radius.mean():.2f}, give or take {radius.std():.2f}")


if __name__ == "__main__":
    main()
