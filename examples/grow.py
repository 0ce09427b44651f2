"""A network that grows in the middle of its training: a layer gets more units, and the outputs stay what they were.

    python examples/grow.py

Each new unit is a copy of one that is there, and the copies share its outgoing weights: Chen, Goodfellow and Shlens
2016, "Net2Net: accelerating learning via knowledge transfer", arXiv:1511.05641, Net2WiderNet. The moments of Adam, the
average of the weights and the schedule continue.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from train_manager import Extension, InMemory, TrainManager
from train_manager.extensions import EMA, Metrics

EPOCHS, GROWN_AFTER = 20, 10
NARROW, WIDE = 8, 32
NAMES = ("0.weight", "0.bias", "2.weight")  # of the layer that grows, and of the layer that reads it


class Grow(Extension):
    """Widen the hidden layer of ``nn.Sequential(nn.Linear(...), nn.ReLU(), nn.Linear(...))`` once."""

    def __init__(self, width: int, after: int) -> None:
        self.width, self.after = width, after

    def pre_train_step_epoch(self, train_manager: TrainManager, epoch_num: int) -> None:
        if epoch_num == self.after and train_manager.model[0].out_features < self.width:
            grow(train_manager, self.width)


def grow(tm: TrainManager, width: int) -> None:
    """Widen the hidden layer, in the model, the optimizer and the average."""
    copied = Copied(tm.model[0].out_features, width, tm.model[2].out_features)
    old = [tm.model.get_parameter(name) for name in NAMES]
    average = tm["ema"].average
    averages = [average[name] for name in NAMES]
    # First the new parameters stand in the model; then the optimizer and the extensions hear of them.
    new = [nn.Parameter(tensor) for tensor in copied.widen(*old)]
    tm.model[0].weight, tm.model[0].bias, tm.model[2].weight = new
    tm.model[0].out_features = tm.model[2].in_features = width
    tm.replace_parameters(dict(zip(old, new, strict=True)))
    # EMA has kept the old block as it was, and taken the rest from the new parameters: it is widened by the same rule,
    # because in it too the copies must share the outgoing weights of their unit.
    average = tm["ema"].average
    for name, tensor in zip(NAMES, copied.widen(*averages), strict=True):
        average[name].copy_(tensor)


class Copied:
    """Which unit each unit of the wide layer copies: first each once, then drawn ones; and its shares of the weights.

    With equal shares, as in the paper, equal copies would have equal gradients, and stay equal for ever; the paper adds
    noise against it, which changes the outputs. Here each output has shares of its own, so that the copies serve
    different outputs. (One share for all outputs would only scale the gradient of a copy, which Adam undoes.)
    """

    def __init__(self, narrow: int, wide: int, outputs: int) -> None:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(narrow, (wide - narrow,), generator=generator)
        self.source = torch.cat([torch.arange(narrow), drawn])
        parts = torch.rand(outputs, wide, generator=generator)
        self.shares = parts / torch.zeros(outputs, narrow).index_add(1, self.source, parts)[:, self.source]

    @torch.no_grad()
    def widen(self, weight: Tensor, bias: Tensor, outgoing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of the layer and of the next one with copied units, which compute the same."""
        return weight[self.source], bias[self.source], outgoing[:, self.source] * self.shares


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def manager(**arguments: Any) -> TrainManager:
    """Return the training of a narrow network on digits; arguments replace those here."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
    train, test = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split([1347, 450])
    torch.manual_seed(0)
    usual: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(64, NARROW), nn.ReLU(), nn.Linear(NARROW, 10)),
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: AdamW(parameters, lr=0.003),
        "lr_schedule": lambda optimizer: CosineAnnealingLR(optimizer, T_max=EPOCHS),
        "train_data": InMemory(x[train], y[train], batch_size=32, shuffle=True),
        "eval_data": {"test": InMemory(x[test], y[test], batch_size=450)},
        "epochs": EPOCHS,
        "extensions": [EMA(decay=0.99), Metrics(eval={"accuracy": accuracy}), Grow(WIDE, GROWN_AFTER)],
    }
    return TrainManager(**usual | arguments)


def main() -> None:
    """Train, and print how often the network is right about scans that it has not seen."""
    tm = manager()
    tm.train()
    for row in tm.history.evaluations:
        print(f"after epoch {row['epoch']:2}  accuracy {row['accuracy']:.1%}")
    print(f"{tm.model[0].out_features} units")


if __name__ == "__main__":
    main()
