"""What the tests of optimizers share: a small GAN, trained by the loop and by a hand-written loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from train_manager import Extension, TrainManager
from train_manager.extensions import SAM, Accumulate, ClipGradients, MixedPrecision

NAMES = ("critic", "generator")
Batches = list[tuple[Tensor, Tensor]]


class Gan(nn.Module):
    """Two small parts, of which the generator has a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
            self.critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

    def loss_of(self, name: str, real: Tensor, noise: Tensor) -> Tensor:
        if name == "generator":
            return F.softplus(-self.critic(self.generator(noise))).mean()
        fake = self.generator(noise).detach()
        return F.softplus(self.critic(fake)).mean() + F.softplus(-self.critic(real)).mean()

    def optimizers(self) -> dict[str, Optimizer]:
        return {name: SGD(getattr(self, name).parameters(), lr=0.5, momentum=0.5) for name in NAMES}


class GanManager(TrainManager):
    """Update the critic and the generator with each batch of real examples and noise."""

    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for name in NAMES:
            self.update(partial(self.model.loss_of, name, inputs, targets), name)


def gan_manager(*extensions: Extension, kind: type[TrainManager] = GanManager, **options: Any) -> TrainManager:
    model = Gan()
    given: dict[str, Any] = {"model": model, "optimizer": model.optimizers(), "train_data": gan_batches()}
    return kind(extensions=list(extensions), **{**given, **options})


def gan_batches(count: int = 6, size: int = 8) -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [(torch.rand(size, 2, generator=generator), torch.rand(size, 3, generator=generator)) for _ in range(count)]


def extensions_for(
    accumulate: int = 1, dtype: torch.dtype | None = None, clip: tuple[str, ...] = (), sam: tuple[str, ...] = ()
) -> list[Extension]:
    """Return the extensions that do what ``by_hand`` does; for both optimizers, one of a kind without a name."""
    made: list[Extension] = []
    if accumulate > 1:
        made.append(Accumulate(accumulate))
    if dtype is not None:
        made.append(MixedPrecision(dtype))
    made += [ClipGradients(0.01, optimizer=name) for name in clip] if clip != NAMES else [ClipGradients(0.01)]
    made += [SAM(0.5, optimizer=name) for name in sam] if sam != NAMES else [SAM(0.5)]
    return made


def by_hand(
    accumulate: int = 1, dtype: torch.dtype | None = None, clip: tuple[str, ...] = (), sam: tuple[str, ...] = ()
) -> Gan:
    """Train as the papers do, without this library."""
    model = Gan()
    optimizers = model.optimizers()
    scalers = {name: GradScaler("cpu", enabled=dtype is torch.float16) for name in NAMES}
    parameters = {name: list(getattr(model, name).parameters()) for name in NAMES}

    def run_backward(name: str, batch: tuple[Tensor, Tensor]) -> None:
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            loss = model.loss_of(name, *batch)
        torch.autograd.backward(scalers[name].scale(loss), inputs=parameters[name])

    for number, batch in enumerate(gan_batches(), 1):
        for name, optimizer in optimizers.items():
            run_backward(name, batch)
            if number % accumulate:
                continue
            for parameter in parameters[name]:
                parameter.grad /= accumulate
            if name in sam:
                with climbed_by_hand(model, parameters[name]):
                    optimizer.zero_grad()
                    run_backward(name, batch)
            scalers[name].unscale_(optimizer)
            if name in clip:
                nn.utils.clip_grad_norm_(parameters[name], 0.01)
            scalers[name].step(optimizer)
            scalers[name].update()
            optimizer.zero_grad()
    return model


@contextmanager
def climbed_by_hand(model: nn.Module, parameters: list[nn.Parameter]) -> Iterator[None]:
    """Move half a unit along the gradient; the weights and all buffers are put back."""
    weights, buffers = ([value.detach().clone() for value in values] for values in (parameters, model.buffers()))
    gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient * (0.5 / (norm + 1e-12)))
    yield
    with torch.no_grad():
        for value, before in zip([*parameters, *model.buffers()], [*weights, *buffers], strict=True):
            value.copy_(before)


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert value.equal(other.state_dict()[name]), name
