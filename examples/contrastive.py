"""A siamese network, which reads pairs of digits and puts those with the same label near each other.

    python examples/contrastive.py

The inputs of a batch are a pair of tensors, which the forward takes as two arguments. Hadsell, Chopra and LeCun 2006,
"Dimensionality reduction by learning an invariant mapping".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader, Dataset

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 4
MARGIN = 1.0
LOG_EVERY = 11

Pair = tuple[tuple[Tensor, Tensor], bool]  # two images, and whether they have the same label


class Siamese(nn.Module):
    """Two images in, the distance of their places out."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return F.pairwise_distance(self.place(first), self.place(second))


class Pairs(Dataset[Pair]):
    """Pairs of digits: every other one has the same label twice."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.generator = torch.Generator().manual_seed(0)
        self.seconds = [self._second(index) for index in range(len(images))]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Pair:
        second = self.seconds[index]
        return (self.images[index], self.images[second]), bool(self.labels[index] == self.labels[second])

    def _second(self, index: int) -> int:
        same = self.labels == self.labels[index]
        found = (same if index % 2 else ~same).nonzero().flatten()
        return int(found[torch.randint(len(found), (), generator=self.generator)])


def pairs() -> tuple[DataLoader[Pair], DataLoader[Pair]]:
    """Return pairs to train on, in a new random order each epoch, and pairs to test with."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    images = pixels.float() / 16
    train, test = Pairs(images[:1347], labels[:1347]), Pairs(images[1347:], labels[1347:])
    return DataLoader(train, batch_size=64, shuffle=True), DataLoader(test, batch_size=200)


def contrastive_loss(prediction: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of the squared distances, or of what is missing to the margin where labels differ."""
    return torch.where(targets, prediction, (MARGIN - prediction).relu()).square().mean()


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction < MARGIN / 2) == targets


def manager() -> TrainManager:
    train, test = pairs()
    return TrainManager(
        model=Siamese(),
        loss=contrastive_loss,
        optimizer=lambda parameters: Adam(parameters, lr=2e-3),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            Log(every=LOG_EVERY, counts=("epoch", "batch"), rate=None),
            Metrics(eval={"accuracy": accuracy}),
        ],
    )


def main() -> None:
    """Train, and print how often the distance says whether two digits are the same."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"test accuracy {result.metrics['test']['accuracy']:.1%}")


if __name__ == "__main__":
    main()
