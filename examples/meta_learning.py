"""MAML: weights from which one step of gradient descent fits a new sine wave, with gradients through that step.

    python examples/meta_learning.py

Finn, Abbeel and Levine 2017, "Model-agnostic meta-learning for fast adaptation of deep networks", arXiv:1703.03400.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import TrainManager
from train_manager.extensions import Log

STEPS, TASKS = 200, 4  # tasks in a batch
INNER_RATE = 0.02
LOG_EVERY = 50

Task = tuple[Tensor, Tensor, Tensor, Tensor]  # points of a wave to fit, and others to judge the fit by


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def batches(seed: int, n: int) -> list[list[Task]]:
    """Return batches of waves of random height and shift, each known at a few points."""
    generator = torch.Generator().manual_seed(seed)

    def task() -> Task:
        height, shift = torch.rand(2, generator=generator) * torch.tensor([4.9, math.pi]) + torch.tensor([0.1, 0.0])
        x = 10 * torch.rand(20, 1, generator=generator) - 5
        y = height * torch.sin(x - shift)
        return x[:10], y[:10], x[10:], y[10:]

    return [[task() for _ in range(TASKS)] for _ in range(n)]


def loss_after_a_step(model: nn.Module, task: Task) -> Tensor:
    """Return the loss at the other points of a task, with weights that are one step nearer to its first ones."""
    x, y, other_x, other_y = task
    weights: dict[str, Tensor] = dict(model.named_parameters())
    loss = F.mse_loss(functional_call(model, weights, x), y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    nearer = {name: weights[name] - INNER_RATE * grad for name, grad in zip(weights, gradients, strict=True)}
    return F.mse_loss(functional_call(model, nearer, other_x), other_y)


class MAML(TrainManager):
    """Add up the gradients of the tasks of a batch, then step."""

    def train_batch(self, batch: list[Task], model: nn.Module) -> None:
        for task in batch:
            self.backward(loss_after_a_step(model, task) / len(batch))
        self.step()

    def eval_batch(self, batch: list[Task], model: nn.Module) -> None:
        with torch.enable_grad():  # for the step
            losses = [loss_after_a_step(model, task).detach() for task in batch]
        self.fixtures["loss"] = torch.stack(losses).mean()


def manager() -> TrainManager:
    return MAML(
        model=network(),
        optimizer=lambda parameters: Adam(parameters, lr=5e-3),
        train_data=batches(seed=0, n=STEPS),
        eval_data={"test": batches(seed=1, n=10)},
        extensions=[Log(every=LOG_EVERY, counts="step", rate=None)],
    )


def main() -> None:
    """Train, and print the error after one step on waves that were not trained on."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"error after one step {result.metrics['test']['loss']:.2f}")


if __name__ == "__main__":
    main()
