"""Clean nets with something special: random numbers, checkpoints, vmap, own backwards, state, small dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.checks.cases import Case
from tests.checks.models.leaking.state import SetByTheFirstBatch
from tests.checks.models.parts import Apply, deep, floats, net, tokens


class OwnGenerator(nn.Module):
    """Noise from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=self.generator)


class NumpyNoise(nn.Module):
    """Noise from a generator of numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(3)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(self.generator.normal(size=tuple(x.shape))).to(x)


class Checkpointed(nn.Module):
    """A block with dropout that is computed again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.2))

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, x, use_reentrant=False)


class Mapped(nn.Module):
    """A function of one example, mapped over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def one(self, row: Tensor) -> Tensor:
        share: Tensor = self.linear(row).softmax(0)
        return share * F.dropout(row, 0.3, self.training)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.vmap(self.one, randomness="different")(x)
        return out


class Forces(nn.Module):
    """Gives an energy's gradient at the input, so that each forward goes back too."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            places = x if x.requires_grad else x.clone().requires_grad_()
            energy = self.energy(places).squeeze(-1)
            (force,) = torch.autograd.grad(energy.sum(), places, create_graph=True)
        return energy, -force


class Straight(torch.autograd.Function):
    """Signs, whose gradient goes straight through, with each row at norm one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return F.normalize(gradients[0], dim=-1)


class Quantised(nn.Module):
    """The nearest word of a code book, which follows the batch after it was read."""

    words: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("words", torch.randn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        nearest = torch.cdist(x.detach(), self.words).argmin(1)
        out = x + (self.words[nearest] - x).detach()
        if self.training:
            target = x.detach().new_zeros(5, 6).index_add(0, nearest, x.detach())
            self.words = self.words.lerp(target, 0.1)
        return out


class Counting(nn.Module):
    """Counts what it has seen, and keeps the last batch for somebody to look at."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor(0))
        self.history: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        self.history.append(x.detach().mean(0))
        return torch.tanh(x)


class OfOneSize(nn.Module):
    """Has a first state for eight examples, and takes no other number."""

    start: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("start", torch.zeros(8, 6))
        self.cell = nn.GRUCell(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.cell(x, self.start)
        return hidden


class Variational(nn.Module):
    """A mean and a spread, and a draw from both."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 6)
        self.decoder = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.encoder(x).chunk(2, -1)
        return self.decoder(mean + spread.exp() * torch.randn_like(mean)), mean, spread


class WritesIntoTheBatch(nn.Module):
    """Scales the batch that it is given in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        x[:, 0] = 0
        logits: Tensor = self.linear(x.div_(2))
        return logits


def shifted() -> nn.Module:
    """A net with a shift that a batch has set before."""
    model = deep(SetByTheFirstBatch())
    model(torch.randn(8, 4))
    return model


def renormed() -> nn.Module:
    """A table whose words are cut to norm one when they are read, in place."""
    return nn.Sequential(nn.Embedding(12, 6, max_norm=1.0), nn.Flatten(), nn.Linear(30, 3))


def hooked() -> nn.Module:
    """A net with a hook that doubles what a layer gives, and one that looks at gradients."""
    model = deep(nn.Linear(6, 6))
    model.get_submodule("body.block.one").register_forward_hook(lambda module, inputs, output: 2 * output)
    model.get_submodule("head").register_full_backward_hook(lambda module, at_input, at_output: None)
    return model


SPECIAL = (
    Case("an own generator", lambda: deep(OwnGenerator()), floats(8, 4)),
    Case("a generator of numpy", lambda: deep(NumpyNoise()), floats(8, 4)),
    Case("the batch scaled in place", WritesIntoTheBatch, floats(8, 4)),
    Case("a shift set by an earlier batch", shifted, floats(8, 4)),
    Case("a checkpoint", lambda: deep(Checkpointed()), floats(8, 4)),
    Case("vmap", lambda: deep(Mapped()), floats(8, 4)),
    Case("bf16", lambda: deep(nn.Tanh()).bfloat16(), lambda: torch.randn(8, 4, dtype=torch.bfloat16)),
    Case("forces from an energy", Forces, floats(8, 4)),
    Case("signs with an own backward", lambda: deep(Apply(Straight.apply)), floats(8, 4)),
    Case("a code book that follows", lambda: net(Quantised()), floats(8, 4)),
    Case("a count and a history", lambda: deep(Counting()), floats(8, 4)),
    Case("a first state for eight", lambda: net(OfOneSize()), floats(8, 4)),
    Case("a draw from mean and spread", Variational, floats(7, 4)),
    Case("words renormed when read", renormed, tokens(8, 5)),
    Case("hooks on layers", hooked, floats(8, 4)),
)
