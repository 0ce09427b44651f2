"""A variational autoencoder, as PyTorch's own example trains it: a loss of several outputs, pictures after each epoch.

    python examples/vae.py

The loss is a sum over the batch, but an evaluation's is per image. Kingma and Welling 2013, arXiv:1312.6114.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader

from train_manager import Extension, TrainManager
from train_manager.extensions import Log

EPOCHS = 4
CODE = 4
LOG_EVERY = 11

Outputs = tuple[Tensor, Tensor, Tensor]  # images, means and logarithms of variances of the codes


class VAE(nn.Module):
    """Images to normal distributions of codes, and samples of them back to images."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())

    def forward(self, images: Tensor) -> Outputs:
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def digits() -> tuple[DataLoader[Tensor], list[Tensor]]:
    """Return 1,347 digits of 64 pixels to train on, in a new random order each epoch, and 450 to test with."""
    from sklearn.datasets import load_digits

    pixels = torch.from_numpy(load_digits().data).float() / 16
    train: DataLoader[Tensor] = DataLoader(pixels[:1347], batch_size=64, shuffle=True)  # type: ignore[arg-type]
    return train, list(pixels[1347:].split(200))


def negative_bound(prediction: Outputs, inputs: Tensor) -> Tensor:
    """Return the error of the images and the distance of the codes from the normal distribution, summed."""
    images, mean, log_variance = prediction
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return F.binary_cross_entropy(images, inputs, reduction="sum") + distance


def save_pictures(decoder: nn.Module, codes: Tensor, file: Path) -> None:
    """Write the images of some codes, side by side, as a grey picture that most viewers open."""
    pixels = (255 * decoder(codes)).byte().reshape(-1, 8, 8).transpose(0, 1).flatten(1)
    file.write_bytes(b"P5 %d 8 255\n" % pixels.shape[1] + bytes(pixels.flatten().tolist()))


class Autoencoder(TrainManager):
    """Train on the sum over a batch, and evaluate per image."""

    def eval_loss_forward(self, prediction: Outputs, inputs: Tensor) -> Tensor:
        return negative_bound(prediction, inputs) / len(inputs)


def manager(folder: Path) -> TrainManager:
    train, test = digits()
    codes = torch.randn(16, CODE)

    def save(model: VAE, epoch_num: int, train_dir: Path) -> None:
        save_pictures(model.decoder, codes, train_dir / f"epoch_{epoch_num}.pgm")

    return Autoencoder(
        model=VAE(),
        loss=negative_bound,
        optimizer=lambda parameters: Adam(parameters, lr=1e-3),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        train_dir=folder,
        extensions=[Extension.of(post_eval=save), Log(every=LOG_EVERY, counts=("epoch", "batch"), rate=None)],
    )


def main() -> None:
    """Train, and print the loss per image and the files."""
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        result = manager(Path(folder)).train()
        print(f"loss {result.metrics['test']['loss']:.1f} per image")
        print(*sorted(file.name for file in Path(folder).glob("*.pgm")))


if __name__ == "__main__":
    main()
