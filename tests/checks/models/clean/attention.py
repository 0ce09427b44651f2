"""Clean transformers, attention by hand and mixtures of experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checks.cases import Case
from tests.checks.models.parts import deep, floats, net, tokens, with_lengths


class Encoder(nn.Module):
    """A transformer encoder over tokens, which hides padding; inside, it may have the time first."""

    def __init__(self, *, batch_first: bool = True, norm_first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=batch_first, norm_first=norm_first)
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.places = nn.Parameter(torch.randn(5, 6))
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(6, 3)
        self.batch_first = batch_first

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.embed(text) + self.places
        if self.batch_first:
            seen = self.encoder(hidden, src_key_padding_mask=text == 0)
        else:
            seen = self.encoder(hidden.transpose(0, 1), src_key_padding_mask=text == 0).transpose(0, 1)
        logits: Tensor = self.head(seen[:, 0])
        return logits


class Decoder(nn.Module):
    """A causal transformer decoder that looks at a source with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.layer = nn.TransformerDecoderLayer(6, 2, 8, batch_first=True)
        self.head = nn.Linear(6, 12)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        seen = self.layer(self.embed(target), self.embed(source), tgt_mask=causal, memory_key_padding_mask=source == 0)
        logits: Tensor = self.head(seen)
        return logits


class Vision(nn.Module):
    """A small vision transformer with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 6, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        row = torch.cat([self.token.expand(len(x), -1, -1), patches], 1)
        logits: Tensor = self.head(self.attention(row, row, row)[0][:, 0])
        return logits


class AttentionPool(nn.Module):
    """A mean of steps by weights that are learned, over the steps that there are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.score = nn.Linear(6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden = torch.tanh(self.embed(x))
        outside = torch.arange(x.shape[1]) >= lengths[:, None]
        weights = self.score(hidden).squeeze(-1).masked_fill(outside, float("-inf")).softmax(1)
        logits: Tensor = self.head((weights[..., None] * hidden).sum(1))
        return logits


class Experts(nn.Module):
    """Each row goes to the expert that it likes most; how evenly is kept as a loss on the module."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        self.balance = shares.flatten(0, -2).mean(0).square().sum()
        best, choice = shares.max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = choice == number
            out[mine] = expert(x[mine]) * best[mine][:, None]
        return out


class TopTwo(nn.Module):
    """A sum of the two experts that a row likes most, all of which are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        best, choice = self.router(x).topk(2)
        outs = torch.stack([expert(x) for expert in self.experts], 1)
        chosen = outs.gather(1, choice[..., None].expand(-1, -1, x.shape[1]))
        shares: Tensor = best.softmax(-1)
        return (shares[..., None] * chosen).sum(1)


class StochasticDepth(nn.Module):
    """Leaves a block out for some examples."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        share = (torch.rand(len(x), 1) < 0.7) / 0.7 if self.training else 1.0
        return x + self.block(x) * share  # type: ignore[no-any-return]


class CachedPlaces(nn.Module):
    """Sines for places, made once for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.head = nn.Linear(6, 3)
        self.places: dict[int, Tensor] = {}

    def forward(self, text: Tensor) -> Tensor:
        length = text.shape[1]
        if length not in self.places:
            self.places[length] = torch.outer(torch.arange(length), torch.arange(1, 7)).sin()
        logits: Tensor = self.head((self.embed(text) + self.places[length]).relu().mean(1))
        return logits


class Retrieval(nn.Module):
    """Scores of classes, whose embeddings come with the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 6)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        scores: Tensor = self.query(x) @ F.normalize(classes, dim=1).t()
        return scores


ATTENTION = (
    Case("a transformer with padding", Encoder, tokens(8, 5)),
    Case(
        "a transformer that norms first, time-major inside",
        lambda: Encoder(batch_first=False, norm_first=True),
        tokens(6, 5),
    ),
    Case("a causal decoder", Decoder, lambda: (tokens(8, 5)(), torch.randint(1, 12, (8, 4)))),
    Case("a vision transformer", Vision, floats(8, 1, 4, 4)),
    Case("attention as a pool", AttentionPool, with_lengths(8, 5)),
    Case("experts by row", lambda: net(Experts()), floats(16, 4)),
    Case("two experts for each row", lambda: net(TopTwo()), floats(8, 4)),
    Case("stochastic depth by example", lambda: deep(StochasticDepth()), floats(8, 4)),
    Case("places cached by length", CachedPlaces, tokens(8, 5)),
    Case(
        "classes that all examples share",
        Retrieval,
        lambda: {"x": torch.randn(8, 4), "classes": torch.randn(8, 6)},
        options={"shared": ("classes",)},
    ),
)
