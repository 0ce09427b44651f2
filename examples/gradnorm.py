"""Two tasks on one trunk, weighted so that both pull it equally strongly: GradNorm in a hook.

    python examples/gradnorm.py

The network reads a digit, and estimates how slanted it is. The slant is measured with noise, and in a unit that makes
its loss 20 times as large. Chen, Badrinarayanan, Lee and Rabinovich 2018, arXiv:1711.02257, with ``ALPHA`` as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader

from train_manager import Extension, TrainManager, WeightedLosses
from train_manager.extensions import Metrics

EPOCHS = 5
SCALE = 20.0  # of the loss of the slant
ALPHA = 1.5  # how much more a task pulls that learns more slowly than the other


class TwoTasks(nn.Module):
    """A trunk with a head for the digit and one for the slant."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(64, 16)
        self.digit, self.slant = nn.Linear(16, 10), nn.Linear(16, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.trunk(images).relu()
        return {"digit": self.digit(features), "slant": self.slant(features).squeeze(1)}


class GradNorm(Extension):
    """Move the weights of the losses so that the gradients of the tasks come to have equal norms.

    Runs at: the start of each backward pass. Asks for: loss_parts, losses, model. Leaves behind: other weights in the
    loss, for the next batch.
    """

    def __init__(self, loss: WeightedLosses, lr: float = 0.025) -> None:
        self.loss = loss
        self.weights = torch.ones(len(loss.weights), requires_grad=True)
        self.optimizer = Adam([self.weights], lr=lr)
        self.first: Tensor | None = None  # the losses of the first batch

    def pre_train_backward(
        self, model: TwoTasks, loss_parts: Mapping[str, Tensor], losses: Mapping[str, Tensor]
    ) -> None:
        weights, shared = self.loss.weights, model.trunk.weight
        # The norm of a part is that of its loss times its weight.
        norms = torch.stack([gradient_norm(loss_parts[name], shared) / weights[name] for name in weights])
        now = torch.stack([losses[name].detach() for name in weights])
        self.first = now if self.first is None else self.first
        pace = now / self.first  # small for a task that has learned much
        target = (self.weights.detach() * norms).mean() * (pace / pace.mean()) ** ALPHA
        self.weights.grad = None
        (self.weights * norms - target).abs().sum().backward()
        self.optimizer.step()
        with torch.no_grad():  # positive, with a sum that stays
            self.weights.clamp_(min=1e-3).mul_(len(weights) / self.weights.sum())
        weights.update(zip(weights, self.weights.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        own = {"weights": self.weights.detach().clone(), "optimizer": self.optimizer.state_dict(), "first": self.first}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.first = state["first"]
        self.loss.weights.update(zip(self.loss.weights, self.weights.tolist(), strict=True))


def gradient_norm(loss: Tensor, weight: Tensor) -> Tensor:
    """Return how strongly a loss pulls a weight."""
    (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
    norm: Tensor = torch.linalg.vector_norm(gradient)
    return norm


def slant_loss(prediction: Tensor, targets: Tensor) -> Tensor:
    loss: Tensor = SCALE * F.mse_loss(prediction, targets)
    return loss


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


def manager(*, is_balanced: bool = True) -> TrainManager:
    """Return a training with GradNorm, or one in which both weights stay 1."""
    images, targets = digits()
    # A list is a data set to torch, but not to type checkers.
    rows: Any = [(image, {name: values[row] for name, values in targets.items()}) for row, image in enumerate(images)]
    loss = WeightedLosses({"digit": F.cross_entropy, "slant": slant_loss})
    return TrainManager(
        model=TwoTasks(),
        loss=loss,
        optimizer=lambda parameters: Adam(parameters, lr=1e-2),
        train_data=DataLoader(rows[:1347], batch_size=32, shuffle=True),
        eval_data={"test": DataLoader(rows[1347:], batch_size=450)},
        eval_at="end",
        epochs=EPOCHS,
        extensions=[Metrics(eval={"accuracy": right_digits}), *([GradNorm(loss)] if is_balanced else [])],
    )


def main() -> None:
    """Train without and with GradNorm, and print how many digits each reads."""
    for name, is_balanced in (("sum", False), ("GradNorm", True)):
        torch.manual_seed(0)
        print(f"{name}: {manager(is_balanced=is_balanced).train().metrics['test']['accuracy']:.1%} of the digits")


if __name__ == "__main__":
    main()
