"""Clean nets of usual layers, and what only looks like a mistake."""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.checks.cases import Case
from tests.checks.models.parts import Apply, Twice, beside_batch_norm, deep, floats, net


class OwnFilters(nn.Module):
    """Filters for each example, applied by one convolution with the batch folded into the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.style = nn.Linear(4, 2 * 1 * 9)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch = len(x)
        filters = self.style(style).view(batch * 2, 1, 3, 3)
        return F.conv2d(x.view(1, batch, *x.shape[2:]), filters, groups=batch).view(batch, 2, 2, 2)


class Tied(nn.Module):
    """Scores of words by the table that embeds them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.middle = nn.Linear(6, 6)

    def forward(self, text: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.middle(self.embed(text))), self.embed.weight)


class Siamese(nn.Module):
    """One encoder for both of a pair, folded into one batch and taken apart rightly."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        first, second = self.encoder(torch.cat([one, other])).chunk(2)
        return F.cosine_similarity(first, second)


class Hyper(nn.Module):
    """A layer whose weights another one gives, for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Linear(4, 24)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(self.weights(x).view(-1, 6, 4), x[..., None]).squeeze(-1)


class Squeezed(nn.Module):
    """Squeeze and excite, of each example."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 3)

    def forward(self, maps: Tensor) -> Tensor:
        return maps * torch.sigmoid(self.scale(maps.mean((2, 3))))[:, :, None, None]


class Tempered(nn.Module):
    """Logits, and the temperature that was learned for them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.temperature = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x) / self.temperature.exp(), self.temperature


def frozen() -> nn.Module:
    model = deep(nn.Linear(6, 6))
    model.get_submodule("body.block").requires_grad_(False)
    return model


def convolutional() -> nn.Module:
    pooled = OrderedDict(conv=nn.Conv2d(1, 4, 3), act=nn.ReLU(inplace=True), pool=nn.MaxPool2d(2))
    return nn.Sequential(OrderedDict(**pooled, flat=nn.Flatten(), head=nn.Linear(16, 3)))


def images(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4, 3))


def viewed_inside_of_examples(x: Tensor) -> Tensor:
    """A view in place of a permutation mixes pixels, but of one example."""
    batch, channels, height, width = x.shape
    return x.view(batch, height, width, channels).permute(0, 3, 1, 2)


def sorted_and_restored(x: Tensor) -> Tensor:
    order = x.sum(1).argsort()
    return torch.tanh(x[order])[order.argsort()]


def written_inside_of_examples(x: Tensor) -> Tensor:
    out = x.clone()
    out[:, 1:] += 0.5 * x[:, :-1]
    return out


LAYERS = (
    Case("an MLP", lambda: deep(nn.Tanh()), floats(8, 4)),
    Case("a convolutional net", convolutional, floats(8, 1, 6, 6)),
    Case("a layer norm", lambda: deep(nn.LayerNorm(6)), floats(5, 4)),
    Case("a group norm", lambda: images(nn.GroupNorm(2, 4)), floats(8, 1, 4, 4)),
    Case("an instance norm", lambda: images(nn.InstanceNorm2d(4, affine=True)), floats(8, 1, 4, 4)),
    Case("a batch norm in eval mode", lambda: beside_batch_norm(nn.Tanh(), before=True), floats(8, 4), modes=("eval",)),
    Case("squeeze and excite", lambda: nn.Sequential(nn.Conv2d(1, 3, 3), Squeezed(), nn.Flatten()), floats(8, 1, 4, 4)),
    Case("dropout", lambda: deep(nn.Dropout(0.3)), floats(8, 4)),
    Case("dropout of whole channels", lambda: images(nn.Dropout2d(0.3)), floats(8, 1, 4, 4)),
    Case("a spectral norm", lambda: deep(parametrizations.spectral_norm(nn.Linear(6, 6))), floats(8, 4)),
    Case("a part used twice", lambda: Twice(nn.Linear(6, 6)), floats(8, 4)),
    Case("a frozen part", frozen, floats(8, 4)),
    Case("tied weights", Tied, lambda: torch.randint(0, 12, (8, 5))),
    Case("filters for each example", OwnFilters, lambda: (torch.randn(8, 1, 4, 4), torch.randn(8, 4))),
    Case("weights for each example", Hyper, floats(8, 4)),
    Case("a pair through one encoder", Siamese, lambda: (torch.randn(8, 4), torch.randn(8, 4))),
    Case("a learned temperature", Tempered, floats(6, 4)),
    Case(
        "a view for a permutation inside of examples",
        lambda: images(Apply(viewed_inside_of_examples)),
        floats(8, 1, 4, 4),
    ),
    Case("sorted and restored", lambda: deep(Apply(sorted_and_restored)), floats(8, 4)),
    Case("written inside of examples", lambda: deep(Apply(written_inside_of_examples)), floats(8, 4)),
    Case(
        "complex numbers",
        lambda: nn.Sequential(
            nn.Linear(4, 6, dtype=torch.cfloat),
            Apply(lambda z: cast(Tensor, z * z.abs())),
            nn.Linear(6, 3, dtype=torch.cfloat),
        ),
        lambda: torch.randn(8, 4, dtype=torch.cfloat),
    ),
    Case("the spectrum of floats", lambda: net(Apply(lambda x: torch.fft.rfft(x).abs()), outs=4), floats(8, 4)),
)
