"""Leaks on the way back alone: custom functions and hooks on gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, beside_batch_norm, deep, floats, net, tokens

Gradients = tuple[Tensor | None, ...] | Tensor


class WithBackward(torch.autograd.Function):
    """The identity, with a backward that is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, backward: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.of_gradient = backward
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.of_gradient(gradients[0], x), None


class Backward(nn.Module):
    """A part that only changes what comes back: by the gradient and the input."""

    def __init__(self, of_gradient: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.of_gradient = of_gradient

    def forward(self, x: Tensor) -> Any:
        return WithBackward.apply(x, self.of_gradient)  # type: ignore[no-untyped-call]


class HookedInside(nn.Module):
    """A part with a hook on a tensor in its middle."""

    def __init__(self, hook: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 6)
        self.hook = hook

    def forward(self, x: Tensor) -> Any:
        hidden = torch.tanh(self.inner(x)) * 2
        if hidden.requires_grad:
            hidden.register_hook(self.hook)
        return self.outer(hidden + 0)


def hooked_after() -> nn.Module:
    """A layer whose full backward hook takes the batch's mean from the gradient."""

    def center(module: nn.Module, grad_input: Gradients, grad_output: Gradients) -> tuple[Tensor | None, ...]:
        return tuple(None if gradient is None else gradient - gradient.mean(0) for gradient in grad_input)

    layer = nn.Linear(6, 6)
    layer.register_full_backward_hook(center)
    return layer


def hooked_before() -> nn.Module:
    """A layer whose full backward pre hook divides the gradient by its norm."""

    def scale(module: nn.Module, grad_output: Gradients) -> tuple[Tensor | None, ...]:
        return tuple(None if gradient is None else gradient / (1e-6 + gradient.norm()) for gradient in grad_output)

    layer = nn.Linear(6, 6)
    layer.register_full_backward_pre_hook(scale)
    return layer


def seen_on_the_way_back(x: Tensor) -> Tensor:
    """Add the batch's mean and take its value away: the output is as without, the gradient is not."""
    mean = x.square().mean(0)
    return x + (mean - mean.detach())


class WeightOfOthers(torch.autograd.Function):
    """A product whose weight gets the gradient of other rows; the input's gradient is right."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradients[0] @ weight, gradients[0].t() @ x.roll(1, 0)


class OwnLinear(nn.Module):
    """A layer with a backward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) / 3)

    def forward(self, x: Tensor) -> Any:
        return WeightOfOthers.apply(x, self.weight)  # type: ignore[no-untyped-call]


class CheckpointedBackward(nn.Module):
    """A block with a wrong backward, computed again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), Backward(lambda g, x: g - g.mean(0)))

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, x, use_reentrant=False)


class TwoBranches(nn.Module):
    """Gives two parts the same tensor; the one that is called first is wrong on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong = Backward(lambda g, x: g.flip(0))
        self.right = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Any:
        return self.wrong(x) + self.right(x)


class ByFrequency(nn.Module):
    """A table of words with gradients over how often a word is in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, scale_grad_by_freq=True)
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.embed(text)).mean(1))
        return logits


class Words(nn.Module):
    """A net over tokens, whose input has no gradient."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.part = part
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.part(self.embed(text).mean(1))))
        return logits


def over_norm(gradient: Tensor, x: Tensor) -> Tensor:
    scale: Tensor = gradient.norm()
    return gradient / (1e-6 + scale)


def by_size_of_batch(gradient: Tensor, x: Tensor) -> Tensor:
    """The numbers that came in decide, so that the gradient alone shows nothing."""
    return gradient * x.abs().mean()


def cut_at_the_median(gradient: Tensor, x: Tensor) -> Tensor:
    most = float(gradient.abs().median())
    return gradient.clamp(-most, most)


BACKWARD = tuple(
    case._replace(way="backward")
    for case in (
        Case(
            "gradients with their mean taken away",
            lambda: net(Backward(lambda g, x: g - g.mean(0))),
            floats(8, 4),
            "part",
        ),
        Case("gradients over the norm of all", lambda: net(Backward(over_norm)), floats(8, 4), "part"),
        Case(
            "gradients by the size of the batch",
            lambda: deep(Backward(by_size_of_batch)),
            floats(7, 4),
            "body.block.part",
        ),
        Case("a full backward hook that centers", lambda: deep(hooked_after()), floats(8, 4), "body.block.part"),
        Case("a full backward pre hook that scales", lambda: deep(hooked_before()), floats(8, 4), "body.block.part"),
        Case(
            "a hook on a tensor that centers", lambda: net(HookedInside(lambda g: g - g.mean(0))), floats(8, 4), "part"
        ),
        Case("gradients cut at the median of all", lambda: net(Backward(cut_at_the_median)), floats(5, 4), "part"),
        Case("a weight's gradient from other rows", lambda: deep(OwnLinear()), floats(8, 4), "body.block.part"),
        Case("a wrong backward in a checkpoint", lambda: net(CheckpointedBackward()), floats(8, 4), "part.block.1"),
        Case("a wrong backward beside a right one", lambda: deep(TwoBranches()), floats(8, 4), "body.block.part.wrong"),
        Case("gradients of words by frequency", ByFrequency, lambda: torch.randint(1, 12, (8, 5)), "embed"),
        Case(
            "a mean whose value is taken away",
            lambda: deep(Apply(seen_on_the_way_back)),
            floats(8, 4),
            "body.block.part",
        ),
        Case(
            "gradients of tokens by the size of the batch",
            lambda: Words(Backward(by_size_of_batch)),
            tokens(8, 5),
            "part",
        ),
        Case(
            "a row of each gradient for all, after a batch norm",
            lambda: beside_batch_norm(Apply(lambda x: x + (x[:1] - x[:1].detach())), before=False),
            floats(8, 4),
            "part",
        ),
    )
)
