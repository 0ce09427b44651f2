"""LBFGS, an optimizer that computes the loss several times in each step, as PyTorch's own example of sine waves.

    python examples/lbfgs.py

The network reads half of each wave and says how it continues. All waves are one batch, so each epoch is one step; the
loop gives the optimizer the function that it needs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS

from train_manager import TrainManager
from train_manager.extensions import Log

EPOCHS = 8

Batch = tuple[Tensor, Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 20)).double()


def waves() -> tuple[Batch, Batch]:
    """Return the first and second halves of sine waves, to train on and to test with."""
    generator = torch.Generator().manual_seed(0)
    shifts = 20 * torch.rand(100, 1, generator=generator, dtype=torch.float64)
    first, second = torch.sin((torch.arange(40) + shifts) / 5).chunk(2, dim=1)
    return (first[3:], second[3:]), (first[:3], second[:3])


def manager() -> TrainManager:
    train, test = waves()
    return TrainManager(
        model=network(),
        loss=F.mse_loss,
        optimizer=lambda parameters: LBFGS(parameters, lr=0.8),
        train_data=[train],
        eval_data={"test": [test]},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[Log(every=1, counts="epoch", rate=None)],
    )


def main() -> None:
    """Train, and print the error of waves that were not trained on."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"test error {result.metrics['test']['loss']:.2g} after {result.updates} steps")


if __name__ == "__main__":
    main()
