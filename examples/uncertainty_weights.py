"""Two tasks on one trunk, whose weights are learned: by how uncertain each task is.

    pip install "train-manager[multitask]"
    python examples/uncertainty_weights.py

The network reads a digit, and estimates how slanted it is. The slant is measured with noise, and in a unit that makes
its loss 20 times as large. Kendall, Gal and Cipolla 2018, arXiv:1705.07115; ``UW`` of torchjd has the weights as
parameters. It is part of the loss, and the parameters of a loss module are trained with those of the model, as a
warning says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader
from torchjd.scalarization import UW

from train_manager import TrainManager, report_loss
from train_manager.extensions import Metrics

EPOCHS = 20
SCALE = 20.0  # of the loss of the slant


class TwoTasks(nn.Module):
    """A trunk with a head for the digit and one for the slant."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(64, 16)
        self.digit, self.slant = nn.Linear(16, 10), nn.Linear(16, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.trunk(images).relu()
        return {"digit": self.digit(features), "slant": self.slant(features).squeeze(1)}


def task_losses(prediction: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the loss of each task."""
    digit = F.cross_entropy(prediction["digit"], targets["digit"])
    return {"digit": digit, "slant": SCALE * F.mse_loss(prediction["slant"], targets["slant"])}


def plain_loss(prediction: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of the losses."""
    return torch.stack([*task_losses(prediction, targets).values()]).sum()


class UncertaintyLoss(nn.Module):
    """The losses of the tasks, weighted by what ``UW`` has learned."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = UW(2)

    def forward(self, prediction: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> Tensor:
        losses = task_losses(prediction, targets)
        factors = 0.5 * torch.exp(-self.weigh.log_var.detach())
        for (name, loss), factor in zip(losses.items(), factors, strict=True):
            report_loss(loss, name, weight=factor)  # a curve for each task
        total: Tensor = self.weigh(torch.stack([*losses.values()]))
        return total


def digits() -> tuple[Tensor, dict[str, Tensor]]:
    """Return images, and for each its digit and its slant with noise."""
    from sklearn.datasets import load_digits

    pixels, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    images, place = pixels.float() / 16, torch.arange(8.0) - 3.5
    slant = torch.einsum("nij,i,j->n", images.view(-1, 8, 8), place, place)
    noise = torch.randn(len(slant), generator=torch.Generator().manual_seed(1))
    return images, {"digit": labels, "slant": (slant - slant.mean()) / slant.std() + noise}


def right_digits(prediction: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> Tensor:
    return prediction["digit"].argmax(dim=1) == targets["digit"]


def manager(loss: nn.Module | None = None) -> TrainManager:
    """Return a training with this loss; without one, with the plain sum."""
    images, targets = digits()
    # A list is a data set to torch, but not to type checkers.
    rows: Any = [(image, {name: values[row] for name, values in targets.items()}) for row, image in enumerate(images)]
    return TrainManager(
        model=TwoTasks(),
        loss=loss or plain_loss,
        optimizer=lambda parameters: Adam(parameters, lr=1e-2),
        train_data=DataLoader(rows[:1347], batch_size=32, shuffle=True),
        eval_data={"test": DataLoader(rows[1347:], batch_size=450)},
        eval_at="end",
        epochs=EPOCHS,
        extensions=[Metrics(eval={"accuracy": right_digits})],
    )


def main() -> None:
    """Train with the plain sum and with learned weights, and print how many digits each reads."""
    for name, loss in (("sum", None), ("learned weights", UncertaintyLoss())):
        torch.manual_seed(0)
        print(f"{name}: {manager(loss).train().metrics['test']['accuracy']:.1%} of the digits")


if __name__ == "__main__":
    main()
