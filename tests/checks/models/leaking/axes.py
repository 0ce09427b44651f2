"""Leaks by axes: an axis is taken for another one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, InRoot, deep, floats, net


def viewed_as_time_major(x: Tensor) -> Tensor:
    """Read ``(B, T, F)`` as ``(T, B, F)`` without a transposition."""
    return x.reshape(x.shape[1], x.shape[0], x.shape[2]).mean(0)


def unfolded_in_the_wrong_order(x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    folded = torch.relu(x.flatten(0, 1))
    out: Tensor = folded.unflatten(0, (length, batch))
    return out.transpose(0, 1)


def stacked_before_the_batch(x: Tensor) -> Tensor:
    return torch.stack([x, x.abs(), x.square()]).view(len(x), 3, -1).mean(1)


class Convolutional(nn.Module):
    """A net for images that moves the channels to the front before it flattens."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.head = nn.Linear(3 * 2 * 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        maps = torch.relu(self.conv(x))
        logits: Tensor = self.head(maps.transpose(0, 1).reshape(len(x), -1))
        return logits


class Recurrent(nn.Module):
    """A net around a recurrent layer, whose last state is read in its own way."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 5)
        self.rnn = rnn
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.rnn(self.embed(x))[0][:, -1])
        return logits


class Attending(nn.Module):
    """Attention with itself, by torch's layer."""

    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x + self.attention(x, x, x)[0])
        return out


class Advantage(nn.Module):
    """The value of a state against the mean of it: ``(B, 1)`` against ``(B,)``."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(4, 1)
        self.baseline = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.value(x) - self.baseline(x).squeeze(1)).mean(1)


class ClassToken(nn.Module):
    """A vision transformer that puts its class token before the first example, not before the first patch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 6, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.mix = Attending(batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        with_token = torch.cat([self.token.expand(1, patches.shape[1], -1), patches], 0)[: len(x)]
        logits: Tensor = self.head(self.mix(with_token)[:, 0])
        return logits


class TwoViews(nn.Module):
    """A contrastive projection of two views, read back as if the views of an example were neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        self.projection = nn.Linear(6, 4)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        both = self.projection(self.encoder(torch.cat([one, other])))
        return F.normalize(both.view(len(one), 2, -1), dim=-1)


class OneFrame(nn.Module):
    """Attention over frames; with one frame ``squeeze`` takes its axis away, and the next one is the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.score = nn.Linear(6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, frames: Tensor) -> Tensor:
        hidden = self.embed(frames).squeeze()
        weights = self.score(hidden).softmax(-2)
        logits: Tensor = self.head(hidden * weights)
        return logits


class OverRows(nn.Module):
    """A convolution over a table whose rows are taken for time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x.t().unsqueeze(0)).squeeze(0).t()
        return out


class MappedOverFeatures(nn.Module):
    """``vmap`` over axis 1, so that the function of one example is given one feature of all."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.vmap(lambda feature: feature.softmax(0), in_dims=1, out_dims=1)(x)
        return out


class TimeMajor(nn.Module):
    """Time first from the loader on, but the recurrent layer thinks otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.rnn(x)[0])
        return logits


AXES = (
    Case("time read as the batch by a view", lambda: net(Apply(viewed_as_time_major)), floats(8, 5, 4), "part"),
    Case("channels before the batch when flattened", Convolutional, floats(8, 1, 4, 4)),
    Case(
        "an LSTM without batch_first",
        lambda: Recurrent(nn.LSTM(5, 6)),
        floats(8, 5, 4),
        "rnn",
    ),
    Case(
        "attention without batch_first",
        lambda: nn.Sequential(nn.Linear(4, 6), Attending(batch_first=True), Attending(batch_first=False)),
        floats(8, 5, 4),
        "2.attention",
    ),
    Case("softmax over the batch", lambda: deep(nn.Softmax(dim=0)), floats(8, 4), "body.block.part"),
    Case("a column against a row", Advantage, floats(6, 4)),
    Case(
        "an unfolding in the wrong order",
        lambda: InRoot(unfolded_in_the_wrong_order),
        floats(8, 5, 4),
    ),
    Case(
        "features stacked before the batch",
        lambda: deep(Apply(stacked_before_the_batch)),
        floats(7, 4),
        "body.block.part",
    ),
    Case("a class token before the first example", ClassToken, floats(8, 1, 4, 8)),
    Case("two views read as neighbours", TwoViews, lambda: (torch.randn(8, 4), torch.randn(8, 4))),
    Case("squeeze takes the axis of one frame", OneFrame, floats(8, 1, 4)),
    Case("vmap over features", lambda: deep(MappedOverFeatures()), floats(8, 4), "body.block.part"),
    Case("a GRU with batch_first, time-major outside", TimeMajor, floats(5, 8, 4), "rnn", options={"batch_axis": 1}),
    Case("a convolution over the rows", lambda: net(OverRows()), floats(7, 4), "part.conv"),
)
