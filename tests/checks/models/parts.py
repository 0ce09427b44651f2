"""What the models share: nets with a place for one part, and batches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Apply(nn.Module):
    """A part without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


class InRoot(nn.Module):
    """A net whose own forward does something between two layers."""

    def __init__(self, function: Callable[[Tensor], Tensor], ins: int = 4, outs: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(ins, 6)
        self.last = nn.Linear(outs, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.last(self.function(self.first(x)))


class Twice(nn.Module):
    """A net that calls one part two times."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.part = part
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        once = self.part(self.first(x))
        return self.last(self.part(torch.tanh(once)))


def net(part: nn.Module, ins: int = 4, inside: int = 6, outs: int = 6) -> nn.Module:
    """A part between two layers, by the name ``part``."""
    return nn.Sequential(OrderedDict(first=nn.Linear(ins, inside), part=part, last=nn.Linear(outs, 3)))


def deep(part: nn.Module) -> nn.Module:
    """A part that keeps 6 features, three levels down, by the name ``body.block.part``."""
    block = nn.Sequential(OrderedDict(one=nn.Linear(6, 6), act=nn.Tanh(), part=part, two=nn.Linear(6, 6)))
    body = nn.Sequential(OrderedDict(norm=nn.LayerNorm(6), block=block))
    return nn.Sequential(OrderedDict(stem=nn.Linear(4, 6), body=body, head=nn.Linear(6, 3)))


def beside_batch_norm(part: nn.Module, *, before: bool) -> nn.Module:
    """A part before or after a norm over the batch, by the name ``part``."""
    norm = nn.BatchNorm1d(6)
    middle = OrderedDict(part=part, norm=norm) if before else OrderedDict(norm=norm, part=part)
    return nn.Sequential(OrderedDict(first=nn.Linear(4, 6), **middle, act=nn.Tanh(), last=nn.Linear(6, 3)))


def floats(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


def draw_tokens(examples: int, length: int, words: int = 12) -> Tensor:
    """Words from 1 on, with 0 as padding behind each text but the first."""
    words_of = torch.randint(1, words, (examples, length))
    lengths = draw_lengths(examples, length)
    return words_of * (torch.arange(length) < lengths[:, None])


def draw_lengths(examples: int, length: int) -> Tensor:
    """Lengths from 2 on; the first example alone has the whole length."""
    lengths = torch.randint(2, length, (examples,))
    lengths[0] = length
    return lengths


def tokens(examples: int, length: int) -> Callable[[], Tensor]:
    return lambda: draw_tokens(examples, length)


def with_lengths(examples: int, length: int, features: int = 4) -> Callable[[], tuple[Tensor, Tensor]]:
    """A padded batch of sequences, and how long each is."""

    def draw() -> tuple[Tensor, Tensor]:
        lengths = draw_lengths(examples, length)
        mask = torch.arange(length) < lengths[:, None]
        return torch.randn(examples, length, features) * mask[..., None], lengths

    return draw
