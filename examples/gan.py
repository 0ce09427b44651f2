"""A DCGAN: a generator and a discriminator, each with an optimizer of its own, on the digits of scikit-learn.

    python examples/gan.py

``train_batch`` says what is done with a batch. ``update`` goes backward and steps one optimizer, so that extensions
such as ``ClipGradients(1.0, optimizer="discriminator")`` can be added to the list.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader

from train_manager import Extension, TrainManager
from train_manager.extensions import Log

EPOCHS = 3
NOISE = 16
LOG_EVERY = 14

adam = partial(Adam, lr=2e-3, betas=(0.5, 0.999))


def networks() -> nn.ModuleDict:
    generator = nn.Sequential(
        *(nn.Linear(NOISE, 512), nn.Unflatten(1, (32, 4, 4)), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1), nn.Sigmoid()),
    )
    discriminator = nn.Sequential(
        *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(16, 32, 2, stride=2), nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1)),
    )
    return nn.ModuleDict({"generator": generator, "discriminator": discriminator})


def digits() -> DataLoader[Tensor]:
    from sklearn.datasets import load_digits

    images = torch.from_numpy(load_digits().images).float().unsqueeze(1) / 16
    return DataLoader(images, batch_size=64, shuffle=True, drop_last=True)  # type: ignore[arg-type]


def judged(scores: Tensor, real: bool) -> Tensor:
    """Return the loss of a discriminator's scores, if it should say that the images are real, or that they are not."""
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


class GAN(TrainManager):
    """Train the discriminator on real images and on made ones, then the generator to deceive it."""

    def train_batch(self, inputs: Tensor, model: nn.ModuleDict) -> None:
        generator, discriminator = model["generator"], model["discriminator"]
        fake = generator(torch.randn(len(inputs), NOISE))
        loss = judged(discriminator(inputs), real=True) + judged(discriminator(fake.detach()), real=False)
        self.update(loss, optimizer="discriminator")
        self.update(judged(discriminator(fake), real=True), optimizer="generator")


def manager(*extensions: Extension) -> TrainManager:
    return GAN(
        model=networks(),
        optimizer={"generator": adam, "discriminator": adam},
        train_data=digits(),
        epochs=EPOCHS,
        extensions=[Log(every=LOG_EVERY, show="losses", counts=("epoch", "batch"), rate=None), *extensions],
    )


def picture(image: Tensor) -> str:
    """Return an image as text."""
    return "\n".join("".join(" .:+#@"[int(5.99 * pixel)] * 2 for pixel in row) for row in image)


def main() -> None:
    """Train, and show what the generator makes."""
    torch.manual_seed(0)
    tm = manager()
    tm.train()
    with tm.mode(training=False):
        print(picture(tm.model["generator"](torch.randn(1, NOISE))[0, 0]))


if __name__ == "__main__":
    main()
