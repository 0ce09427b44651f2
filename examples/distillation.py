"""Knowledge distillation: a small network learns from the answers of a large one, and from labels.

    python examples/distillation.py

The points lie on the arms of a spiral. The student sees a quarter as many as its teacher did, and a third of its labels
are drawn at random. Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network", arXiv:1503.02531.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 20
TEMPERATURE, SOFT_WEIGHT = 2.0, 0.9  # the labels have the rest of the weight
LOG_EVERY = 80
ARMS = 5

adam = partial(Adam, lr=5e-3)


def network(width: int, dropout: float = 0.0) -> nn.Module:
    def layer(inputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)]

    return nn.Sequential(*layer(2), *layer(width), nn.Linear(width, ARMS))


def points(n: int, seed: int, random_labels: float = 0.0) -> TensorDataset:
    """Return points on the arms of a spiral, labelled by their arm, and some of them by any arm."""
    generator = torch.Generator().manual_seed(seed)
    arms, radius = torch.arange(n) % ARMS, torch.rand(n, generator=generator)
    angles = 4 * radius + 2 * math.pi / ARMS * arms + 0.15 * torch.randn(n, generator=generator)
    drawn = torch.randint(ARMS, (n,), generator=generator)
    labels = torch.where(torch.rand(n, generator=generator) < random_labels, drawn, arms)
    return TensorDataset(torch.stack([radius * angles.cos(), radius * angles.sin()], dim=1), labels)


def batches(data: TensorDataset) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(data, batch_size=64, shuffle=True)


def distillation_loss(prediction: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """Return how far the student is from the softened answers of its teacher, and from the labels.

    The softened answers have gradients that are smaller by the square of the temperature, by which they are multiplied.
    """
    softened = F.log_softmax(prediction / TEMPERATURE, dim=1), F.log_softmax(taught / TEMPERATURE, dim=1)
    soft_loss = F.kl_div(*softened, reduction="batchmean", log_target=True) * TEMPERATURE**2
    return SOFT_WEIGHT * soft_loss + (1 - SOFT_WEIGHT) * F.cross_entropy(prediction, targets)


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


class Distillation(TrainManager):
    """Train with the teacher's answers and the labels; evaluate with the labels alone."""

    def __init__(self, teacher: nn.Module, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.teacher = teacher.eval()

    def train_loss_forward(self, inputs: Tensor, prediction: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            taught = self.teacher(inputs)
        return distillation_loss(prediction, taught, targets)


def settings() -> dict[str, Any]:
    """Return what the trainings of teacher and student have in common."""
    log = Log(every=LOG_EVERY, counts=("epoch", "batch"), rate=None)
    return {
        "loss": F.cross_entropy,
        "optimizer": adam,
        "eval_data": {"test": [points(1000, seed=1)[:]]},
        "eval_at": "end",
        "epochs": EPOCHS,
        "extensions": [log, Metrics(eval={"accuracy": accuracy})],
    }


def teacher_manager() -> TrainManager:
    return TrainManager(model=network(64, dropout=0.1), train_data=batches(points(1920, seed=0)), **settings())


def student_manager(teacher: nn.Module) -> TrainManager:
    few = points(512, seed=2, random_labels=0.3)
    return Distillation(teacher, model=network(32), train_data=batches(few), **settings())


def main() -> None:
    """Train both, and print how often each is right about points that it has not seen."""
    torch.manual_seed(0)
    teacher = teacher_manager()
    taught = teacher.train().metrics["test"]
    learned = student_manager(teacher.model).train().metrics["test"]
    print(f"accuracy of the teacher {taught['accuracy']:.1%}, of the student {learned['accuracy']:.1%}")


if __name__ == "__main__":
    main()
