"""What the tests of closed stages share: a training, the same by hand, and what opens its inner stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.support.training import Batch, make_batches, weights
from train_manager import Extension, TrainManager

FORWARDS = ("model_forward", "train_model_forward", "loss_forward", "train_loss_forward")
INNER = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")
PARTS = ("train_batch", "forward", "update", "backward", "step")


class Looker(Extension):
    """Looks into the inner stages and does nothing there, so that they are opened."""

    def pre_train_model_forward(self) -> None: ...
    def pre_train_loss_forward(self) -> None: ...
    def pre_train_backward(self) -> None: ...
    def pre_train_optimizer_step(self) -> None: ...


def manager(kind: type[TrainManager], *extensions: Extension, **options: Any) -> TrainManager:
    """Return a manager of a class of its own, with four batches and two epochs."""
    usual: dict[str, Any] = {"model": net(), "loss": F.cross_entropy, "optimizer": slow, "epochs": 2}
    usual |= {"train_data": make_batches(4), "extensions": list(extensions)}
    return kind(**{**usual, **options})


def net(seed: int = 1) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))


def slow(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)


def by_hand(
    model: nn.Module,
    batches: list[Batch],
    loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    optimizer: Optimizer | None = None,
) -> Tensor:
    """Train as a bare loop does; return the weights."""
    optimizer = optimizer or slow(model.parameters())
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
    return weights(model)


def needs(tm: TrainManager) -> str:
    """Return what opens the inner stages, by ``explain``; an empty text if nothing does."""
    notes = tm._notes_on_stages()
    openers = [notes[stage].removeprefix("opened for ") for stage in INNER if notes[stage].startswith("opened")]
    return ", ".join(dict.fromkeys(", ".join(openers).split(", ")))


def runs(tm: TrainManager) -> bool:
    """Return whether the inner stages of the next batch stay closed."""
    return tm._store.closed.issuperset(INNER)


def same_in_stages(train: Callable[..., TrainManager]) -> bool:
    """Return whether a training has the same weights if an extension looks into the inner stages."""
    return torch.equal(weights(train().model), weights(train(Looker()).model))


def doubled_model(self: Any, model: Any, inputs: Tensor) -> Any:
    return model(inputs * 2)


def doubled_loss(self: Any, prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction, targets) * 2


OWN_FORWARDS = dict(zip(FORWARDS, [doubled_model, doubled_model, doubled_loss, doubled_loss], strict=True))
OWN_CLASSES = {name: type("Own", (TrainManager,), {name: method}) for name, method in OWN_FORWARDS.items()}
