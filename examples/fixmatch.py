"""FixMatch: ten labeled points and a thousand without labels, read side by side by two loaders.

    python examples/fixmatch.py

Where the model is sure of a point without a label, its answer is the label of the same point, moved further. The
averaged weights are evaluated. Sohn et al. 2020, "FixMatch", arXiv:2001.07685.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

from train_manager import Endless, Together, TrainManager
from train_manager.extensions import EMA, Log, LRSchedule, Metrics

EPOCHS, STEPS = 3, 100  # steps in an epoch
BATCH, MU = 10, 7  # so many times as many points without a label
THRESHOLD, DECAY = 0.95, 0.98
LOG_EVERY = 50

Example = tuple[Tensor, Tensor | int]


def network() -> nn.Module:
    def layer(inputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, 64), nn.BatchNorm1d(64), nn.ReLU()]

    return nn.Sequential(*layer(2), *layer(64), nn.Linear(64, 2))


def moons(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return points on two half-moons, and which of these they are on."""
    generator = torch.Generator().manual_seed(seed)
    labels, angles = torch.arange(n) % 2, math.pi * torch.rand(n, generator=generator)
    points = torch.stack([angles.cos() - 0.5, angles.sin() - 0.25], dim=1) * (1 - 2 * labels).unsqueeze(1)
    return points + 0.1 * torch.randn(n, 2, generator=generator), labels


def moved(point: Tensor, strength: float) -> Tensor:
    return point + strength * torch.randn(2)


weak, strong = partial(moved, strength=0.05), partial(moved, strength=0.2)


class Labeled(Dataset[Example]):
    """Points, moved a little, and their labels."""

    def __init__(self) -> None:
        self.points, self.labels = moons(10, seed=0)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Example:
        return weak(self.points[index]), self.labels[index]


class Unlabeled(Dataset[Example]):
    """Points, moved a little and moved further."""

    def __init__(self) -> None:
        self.points, _ = moons(1000, seed=1)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Example:
        return weak(self.points[index]), strong(self.points[index])


def loaders() -> tuple[DataLoader[Example], DataLoader[Example]]:
    labeled = DataLoader(Labeled(), batch_size=BATCH, shuffle=True, drop_last=True)
    return labeled, DataLoader(Unlabeled(), batch_size=BATCH * MU, shuffle=True, drop_last=True)


def optimizer_of(model: nn.Module) -> Optimizer:
    """Return SGD whose weight decay leaves out biases and BatchNorm."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 5e-4},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    return SGD(groups, lr=0.03, momentum=0.9, nesterov=True)


def cosine(optimizer: Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: math.cos(math.pi * 7 / 16 * step / (EPOCHS * STEPS)))


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


class FixMatch(TrainManager):
    """Train on labels and, where they are sure, on the model's own answers."""

    def train_batch(self, batch: dict[str, tuple[Tensor, Tensor]], model: nn.Module) -> None:
        (inputs, targets), (weakly, strongly) = batch["labeled"], batch["unlabeled"]
        scores = model(torch.cat([inputs, weakly, strongly]))
        known, (weak_scores, strong_scores) = scores[: len(inputs)], scores[len(inputs) :].chunk(2)
        sureness, answers = weak_scores.detach().softmax(dim=1).max(dim=1)
        is_sure = (sureness >= THRESHOLD).float()
        labeled = F.cross_entropy(known, targets)
        unlabeled = (F.cross_entropy(strong_scores, answers, reduction="none") * is_sure).mean()
        self.update(labeled + unlabeled)
        self.fixtures["parts"] = {"labeled": labeled, "unlabeled": unlabeled, "sure": is_sure.mean()}


def manager() -> TrainManager:
    model, (labeled, unlabeled) = network(), loaders()
    return FixMatch(
        model=model,
        loss=F.cross_entropy,
        optimizer=optimizer_of(model),
        train_data=Together({"labeled": Endless(labeled), "unlabeled": Endless(unlabeled)}),
        eval_data={"test": [moons(1000, seed=2)]},
        eval_at="epoch",
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        extensions=[
            LRSchedule(cosine, per="step"),
            EMA(DECAY, begin="model"),
            Log(every=LOG_EVERY, show=["loss", "parts"], counts=("epoch", "batch"), rate=None),
            Metrics(eval={"accuracy": accuracy}),
        ],
    )


def main() -> None:
    """Train, and print the accuracy on points that were not trained on."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"test accuracy {result.metrics['test']['accuracy']:.1%}")


if __name__ == "__main__":
    main()
