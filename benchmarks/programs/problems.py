"""Three small problems: an MLP and a CNN on images of 28x28, and a transformer on characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES: Final = 10
CHARACTERS: Final = 64
CONTEXT: Final = 64
LR: Final = 1e-3


@dataclass(frozen=True)
class Problem:
    """What a program trains: a new model with its data, which come in the same order in each epoch.

    The loss is ``cross_entropy``, the optimizer AdamW.
    """

    make: Callable[[], nn.Module]
    train: tuple[Tensor, Tensor]
    valid: tuple[Tensor, Tensor]
    batch_size: int
    marks: list[float] = field(default_factory=list)

    def new_model(self) -> nn.Module:
        """The model, with the same weights each time."""
        torch.manual_seed(0)
        return self.make()

    def loader(self, name: str) -> DataLoader[tuple[Tensor, ...]]:
        """A DataLoader of the examples called "train" or "valid"; an evaluation that begins is marked."""
        examples: tuple[Tensor, Tensor] = getattr(self, name)
        return DataLoader(Marked(self, examples) if name == "valid" else TensorDataset(*examples), self.batch_size)

    def mark(self) -> None:
        """Note the CPU time at which an evaluation begins, once an epoch."""
        self.marks.append(process_time())

    def in_channels_last(self) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
        """A new model with the examples to train on and to evaluate; a CNN and its pictures in the layout for it."""
        model, examples = self.new_model(), [self.train, self.valid]
        if self.make is not cnn:
            return model, examples
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
        return model, [(inputs.to(memory_format=torch.channels_last), targets) for inputs, targets in examples]

    def with_batches(self, count: int) -> Problem:
        """The same with so many batches to train on, and one to evaluate."""
        inputs, targets = self.train
        train = inputs[: count * self.batch_size], targets[: count * self.batch_size]
        return replace(self, train=train, valid=(self.valid[0][: self.batch_size], self.valid[1][: self.batch_size]))


class Marked(TensorDataset):
    """Examples that mark the reading of the first."""

    def __init__(self, problem: Problem, examples: tuple[Tensor, Tensor]) -> None:
        super().__init__(*examples)
        self.problem = problem

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if index == 0:
            self.problem.mark()
        return tuple(tensor[index] for tensor in self.tensors)


class Characters(nn.Module):
    """A transformer that predicts each next character: (N, 64) characters to logits of (N, 64 classes, 64)."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, width)
        self.position = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.embedding(inputs) + self.position
        logits: Tensor = self.head(self.layers(hidden, mask=self.mask, is_causal=True))
        return logits.transpose(1, 2)


def mlp() -> nn.Module:
    """784-256-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def cnn() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, CLASSES),
    )


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy pictures of ten shapes."""
    shapes = torch.randn(CLASSES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (count,), generator=generator)
    return shapes[targets] + torch.randn(count, 1, 28, 28, generator=generator), targets


def texts(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Lines in which each character hangs on the one before it, and the same a character later."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(3, (count, CONTEXT + 1), generator=generator).cumsum(dim=1) % CHARACTERS
    return steps[:, :-1].contiguous(), steps[:, 1:].contiguous()


def problems(scale: float = 1.0) -> Mapping[str, Problem]:
    """The three, with a share of their batches."""

    def size(count: int, batch_size: int) -> int:
        return max(round(count * scale), 1) * batch_size

    return {
        "MLP": Problem(mlp, images(size(64, 64), 1), images(size(16, 64), 2), 64),
        "CNN": Problem(cnn, images(size(16, 64), 1), images(size(4, 64), 2), 64),
        "transformer": Problem(Characters, texts(size(12, 16), 1), texts(size(3, 16), 2), 16),
    }
