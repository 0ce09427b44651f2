"""Trained networks in a quarter of the bytes, or with half of the parameters, and what that costs in accuracy.

    pip install "train-manager[demo,quantize]"
    python examples/smaller_models.py

Weights of Linear layers are rounded to int8; nothing is trained after it, and convolutions stay. For low rank, weights
become products of two smaller matrices; then the network trains for some more epochs, as does the whole one that it
is compared with. The digits are those of scikit-learn: 1,347 to train on and 450 to test with.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import InMemory, TrainManager
from train_manager.tools.export import factorize, quantize

EPOCHS, SEEDS = 15, 5
MORE = (1, 5)  # epochs after the weights became products
LEARNING_RATE = 2e-3

Examples = tuple[Tensor, Tensor]  # images, digits


def linear() -> nn.Module:
    """Return a network of Linear layers."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    )


def convolutional() -> nn.Module:
    """Return two convolutions, which have most of the weights, and a small Linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {"Linear layers": linear, "convolutions": convolutional}


def digits() -> tuple[Examples, Examples]:
    """Return the digits to train on, and those to test with."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    images = pixels.float().view(-1, 1, 8, 8) / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:450], order[450:]
    return (images[train], labels[train]), (images[test], labels[test])


def trained(model: nn.Module, examples: Examples, epochs: int, seed: int) -> nn.Module:
    """Train a network in place, and return it."""
    TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=partial(Adam, lr=LEARNING_RATE),
        train_data=InMemory(*examples, batch_size=32, shuffle=True, seed=seed),
        epochs=epochs,
        seed=seed,
        extensions=[],
    ).train()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, examples: Examples) -> float:
    """Return the share of test digits that a network knows, in percent."""
    images, labels = examples
    right = model.eval()(images).argmax(dim=1) == labels
    return 100 * float(right.double().mean())


def size(model: nn.Module) -> int:
    """Return the bytes of a file of the weights."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getbuffer().nbytes


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class Compared(NamedTuple):
    """A smaller form of a network beside the whole one: accuracies in percent."""

    share: float
    whole: float
    smaller: float


def int8(network: Callable[[], nn.Module], seed: int) -> Compared:
    train, test = digits()
    torch.manual_seed(seed)
    model = trained(network(), train, EPOCHS, seed)
    small = quantize(model)
    return Compared(size(small) / size(model), accuracy(model, test), accuracy(small, test))


def low_rank(network: Callable[[], nn.Module], seed: int, more: int = 1) -> Compared:
    train, test = digits()
    torch.manual_seed(seed)
    model = trained(network(), train, EPOCHS, seed)
    whole = trained(copy.deepcopy(model), train, more, seed + 1)
    small = trained(factorize(model, 0.5), train, more, seed + 1)
    return Compared(parameters(small) / parameters(whole), accuracy(whole, test), accuracy(small, test))


def row(name: str, found: Sequence[Compared]) -> str:
    """Return the means over the seeds, and the seed with the largest loss of accuracy."""
    share, whole, smaller = (sum(column) / len(found) for column in zip(*found, strict=True))
    worst = min(one.smaller - one.whole for one in found)
    return f"{name:<28}{share:>6.2f}{whole:>9.2f}{smaller:>9.2f}{smaller - whole:>+9.2f}{worst:>+9.2f}"


def main() -> None:
    """Print a line for each network and each way to make it smaller."""
    print(f"{'':<28}{'share':>6}{'whole':>9}{'smaller':>9}{'mean':>9}{'worst':>9}")
    for name, network in NETWORKS.items():
        print(row(f"int8, {name}", [int8(network, seed) for seed in range(SEEDS)]))
        for more in MORE:
            found = [low_rank(network, seed, more) for seed in range(SEEDS)]
            print(row(f"low rank + {more}, {name}", found))


if __name__ == "__main__":
    main()
