"""Leaks by masks and lengths: how long other examples are changes one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.checks.cases import Case
from tests.checks.models.parts import draw_lengths, tokens, with_lengths


class FromTheLongest(nn.Module):
    """Positions that are counted back from the end of the longest sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(8, 6)

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        steps = lengths.max() - 1 - torch.arange(hidden.shape[1])
        placed: Tensor = hidden + self.positions(steps.clamp(min=0))
        return placed


class Positioned(nn.Module):
    """A net with positions in a part of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.place = FromTheLongest()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.place(self.embed(x), lengths).mean(1))
        return logits


class MeanOfTheLongest(nn.Module):
    """The mean of each sequence over the steps of the longest one."""

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(hidden.shape[1]) < lengths[:, None]
        return (hidden * inside[..., None]).sum(1) / lengths.max()


class MaskOfTheFirst(nn.Module):
    """The mean of each sequence over the steps that the first one has."""

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(hidden.shape[1]) < lengths[:, None]
        return (hidden * inside[0][:, None]).mean(1)


class SoftmaxOfAllSteps(nn.Module):
    """Attention over steps, by one softmax of all steps of the batch that are inside."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(6, 1)

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(hidden.shape[1]) < lengths[:, None]
        weights = hidden.new_zeros(inside.shape)
        weights = weights.masked_scatter(inside, self.score(hidden)[inside].squeeze(-1).softmax(0))
        return (weights[..., None] * hidden).sum(1)


class Pooled(nn.Module):
    """A net whose pool knows the lengths."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.pool = pool
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.pool(self.embed(x), lengths)))
        return logits


class RelativeLength(nn.Module):
    """Is told how long each text is, as a part of the longest."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.head = nn.Linear(7, 3)

    def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
        part = lengths / lengths.max()
        logits: Tensor = self.head(torch.cat([self.embed(text).mean(1), part[:, None]], 1))
        return logits


class HiddenFromAll(nn.Module):
    """Attention that hides a step from all texts as soon as one of them has padding there."""

    def forward(self, hidden: Tensor, text: Tensor) -> Tensor:
        inside = (text > 0).all(0).unsqueeze(0)
        return F.scaled_dot_product_attention(hidden, hidden, hidden, attn_mask=inside)


class PaddingOfAll(nn.Module):
    """A net over tokens around that attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.attention = HiddenFromAll()
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(self.attention(self.embed(text), text).mean(1))
        return logits


class CausalOverExamples(nn.Module):
    """Attention between the last steps of the examples, each of which sees those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6, padding_idx=0)
        self.head = nn.Linear(6, 3)

    def forward(self, text: Tensor) -> Tensor:
        hidden = self.embed(text).mean(1)
        seen = F.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None], is_causal=True)[0]
        logits: Tensor = self.head(seen)
        return logits


def one_padded_text() -> Tensor:
    text = torch.randint(1, 12, (8, 5))
    text[3, 2:] = 0
    return text


MASKS = (
    Case("positions counted from the longest", Positioned, with_lengths(8, 5), "place"),
    Case("means over the longest", lambda: Pooled(MeanOfTheLongest()), with_lengths(8, 5), "pool"),
    Case("the mask of the first example", lambda: Pooled(MaskOfTheFirst()), with_lengths(8, 5), "pool"),
    Case("one softmax for all steps", lambda: Pooled(SoftmaxOfAllSteps()), with_lengths(8, 5), "pool"),
    Case(
        "lengths as parts of the longest",
        RelativeLength,
        lambda: (torch.randint(1, 12, (8, 5)), draw_lengths(8, 5)),
    ),
    Case("padding of one hides from all", PaddingOfAll, one_padded_text, "attention"),
    Case("causal over examples", CausalOverExamples, tokens(7, 5)),
)
