"""A small GPT that learns the characters of a module of the standard library, trained as nanoGPT trains.

    python examples/language_model.py

Four batches are accumulated for each update, in bfloat16; the gradient is clipped; the learning rate warms up and then
falls as a cosine, update by update; the validation loss is measured every 80 batches.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from train_manager import TrainManager, every
from train_manager.extensions import Accumulate, ClipGradients, Log, LRSchedule, MixedPrecision

UPDATES, ACCUMULATED, WARM_UP = 40, 4, 5
STEPS = UPDATES * ACCUMULATED
LEARNING_RATE, LARGEST_NORM = 1e-2, 1.0
EVAL_EVERY, LOG_EVERY = 80, 40  # batches
CONTEXT, WIDTH, HEADS = 24, 32, 4

Batch = tuple[Tensor, Tensor]  # characters, and the characters after them


class Block(nn.Module):
    """Causal attention and a small network, each added to what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.hidden_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.queries_keys_values(self.attention_norm(x)).unflatten(2, (3, HEADS, -1)).transpose(1, 3)
        queries, keys, values = heads.unbind(2)
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.mixed(attended.transpose(1, 2).flatten(2))
        return x + self.hidden(self.hidden_norm(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Characters in, a score for each possible next character out."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, text: Tensor) -> Tensor:
        return self.blocks(self.characters(text) + self.positions.weight)  # type: ignore[no-any-return]


def source() -> tuple[Tensor, int]:
    """Return the source of ``textwrap`` as numbers, and how many different characters it has."""
    text = inspect.getsource(textwrap)
    known = sorted(set(text))
    return torch.tensor([known.index(character) for character in text]), len(known)


def windows(text: Tensor, seed: int) -> Iterator[Batch]:
    """Yield batches of random windows of the text, without an end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - CONTEXT, (8, 1), generator=generator)
        found = text[starts + torch.arange(CONTEXT + 1)]
        yield found[:, :-1], found[:, 1:]


def rate_factor(update: int) -> float:
    """Return what the learning rate is multiplied by: it grows for some updates, then falls as a cosine to a tenth."""
    if update < WARM_UP:
        return (update + 1) / (WARM_UP + 1)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (update - WARM_UP) / (UPDATES - WARM_UP)))


def next_character_loss(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction.flatten(0, 1), targets.flatten())


def manager() -> TrainManager:
    text, characters = source()
    valid = windows(text[-2000:], seed=1)
    return TrainManager(
        model=GPT(characters),
        loss=next_character_loss,
        optimizer=lambda parameters: AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95)),
        train_data=windows(text[:-2000], seed=0),
        steps_per_epoch=STEPS,
        eval_data={"valid": [next(valid) for _ in range(10)]},
        eval_at=every(EVAL_EVERY),
        extensions=[
            Accumulate(ACCUMULATED),
            MixedPrecision(),
            ClipGradients(LARGEST_NORM),
            LRSchedule(lambda optimizer: LambdaLR(optimizer, rate_factor), per="step"),
            Log(every=LOG_EVERY, show={"loss": "loss", "rate": "learning_rates"}, counts="step", rate=None),
        ],
    )


def main() -> None:
    """Train, and print how well the model knows the text that it has not seen."""
    torch.manual_seed(0)
    tm = manager()
    result = tm.train()
    print(f"validation loss {result.metrics['valid']['loss']:.3f} after {result.updates} updates")


if __name__ == "__main__":
    main()
