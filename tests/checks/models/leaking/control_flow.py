"""Leaks that no gradient shows: detached numbers, integers and branches."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, InRoot, deep, floats, net, tokens


class DetachedMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x.detach().mean(0)


class UntilAllHalt(nn.Module):
    """Continues with all rows until the last one has halted."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            if bool((x.abs().amax(1) < 1).all()):
                break
            x = 0.7 * torch.tanh(self.step(x)) + 0.3 * x
        return x


class VoteOfTheBatch(nn.Module):
    """The class that most rows have decides on the head."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 2, bias=False)
        self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        votes = self.router(x).argmax(1).bincount(minlength=2)
        out: Tensor = self.heads[int(votes.argmax())](x)
        return out


class MostFrequentWord(nn.Module):
    """Tokens alone: whether a word is the most frequent of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.head = nn.Linear(7, 3)

    def forward(self, text: Tensor) -> Tensor:
        counts = text[text > 0].bincount(minlength=12)
        share = (text == counts.argmax()).float().mean(1, keepdim=True)
        logits: Tensor = self.head(torch.cat([self.embed(text).mean(1), share], 1))
        return logits


class OnlyLabels(nn.Module):
    """Gives integers: which feature is largest, against the largest of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.score(x)
        return (scores.argmax(1) + scores.argmax(0)[0]) % 7


def gated(x: Tensor) -> Tensor:
    return torch.relu(x) if x.mean() > 0 else torch.tanh(x)


def first(part: nn.Module) -> nn.Module:
    """A part on the batch itself, whose mean is about zero."""
    return nn.Sequential(OrderedDict(part=part, act=nn.Tanh(), head=nn.Linear(4, 3)))


def balanced() -> Tensor:
    """Rows and what is opposite to them: a mean of zero, and as many votes for as against."""
    half = torch.randn(4, 4)
    return torch.stack([half, -half], 1).flatten(0, 1)


def scaled_by_item(x: Tensor) -> Tensor:
    return x / (1 + x.std().item())


def by_numpy(x: Tensor) -> Tensor:
    return x - torch.from_numpy(x.detach().numpy().mean(0))


def rounded_by_the_largest(x: Tensor) -> Tensor:
    """Whole numbers of eight bits, with one scale for the batch; gradients go straight through."""
    scale = x.detach().abs().max() / 127
    return x + ((x / scale).round() * scale - x).detach() * 20


CONTROL_FLOW = (
    Case("a gate by the mean of the batch", lambda: first(Apply(gated)), balanced, "part"),
    Case("a detached mean added", lambda: net(DetachedMean()), floats(8, 4), "part"),
    Case("scaled by an item of the batch", lambda: InRoot(scaled_by_item), floats(8, 4)),
    Case("a mean by numpy", lambda: deep(Apply(by_numpy)), floats(8, 4), "body.block.part"),
    Case("steps until all rows halt", lambda: net(UntilAllHalt()), floats(8, 4), "part"),
    Case("a head by vote", lambda: first(VoteOfTheBatch()), balanced, "part"),
    Case("the most frequent word", MostFrequentWord, tokens(8, 5)),
    Case("integers out, over the batch", OnlyLabels, floats(6, 4)),
    Case("rounded by the largest of the batch", lambda: net(Apply(rounded_by_the_largest)), floats(8, 4), "part"),
)
