"""PyTorch's own MNIST example, on the smaller digits of scikit-learn: StepLR, test accuracy, dry run, saved weights.

python examples/mnist.py
python examples/mnist.py --dry-run              # one batch only
python examples/mnist.py --save digits.pt
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adadelta
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 8
LEARNING_RATE, GAMMA = 1.0, 0.9
LOG_EVERY = 11


def network() -> nn.Module:
    """Return two convolutions and two linear layers, with dropout."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)),
    )


def digits() -> tuple[DataLoader[tuple[Tensor, ...]], list[tuple[Tensor, Tensor]]]:
    """Return 1,347 digits of 8x8 pixels to train on, in a new random order each epoch, and 450 to test with."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    images = pixels.float().reshape(-1, 1, 8, 8) / 16
    train = DataLoader(TensorDataset(images[:1347], labels[:1347]), batch_size=64, shuffle=True)
    return train, list(zip(images[1347:].split(200), labels[1347:].split(200), strict=True))


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def manager() -> TrainManager:
    train, test = digits()
    return TrainManager(
        model=network(),
        loss=F.cross_entropy,
        optimizer=lambda parameters: Adadelta(parameters, lr=LEARNING_RATE),
        lr_schedule=lambda optimizer: StepLR(optimizer, step_size=1, gamma=GAMMA),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            Log(every=LOG_EVERY, counts=("epoch", "batch"), rate=None),
            Metrics(eval={"accuracy": accuracy}),
        ],
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Train, and print the accuracy on the digits held out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry-run", action="store_true", help="train on one batch only")
    parser.add_argument("--save", metavar="FILE", help="save the weights")
    chosen = parser.parse_args(arguments)
    torch.manual_seed(1)
    tm = manager()
    if chosen.dry_run:
        tm.train_steps(1)
    else:
        tm.train()
    if chosen.save:
        torch.save(tm.model.state_dict(), chosen.save)
    print(f"test accuracy {tm.eval()['test']['accuracy']:.1%} after {tm.step_num} batches")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
