"""An LSTM that reads a text in order, as PyTorch's own language model: its hidden state goes from batch to batch.

    python examples/hidden_state.py

The state is cut off from its graph after each batch (truncated backpropagation), and an evaluation has a state of its
own. The learning rate is divided by 4 after each epoch without a lower validation loss.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from train_manager import TrainManager
from train_manager.extensions import ClipGradients, Log, LRSchedule

EPOCHS = 6
LEARNING_RATE, LARGEST_NORM = 20.0, 0.25
LOG_EVERY = 21
WIDTH, LENGTH = 32, 25

Batch = tuple[Tensor, Tensor]  # characters, and the characters after them
Hidden = tuple[Tensor, Tensor]


class Reader(nn.Module):
    """Characters and a hidden state in, scores for the next characters and the next hidden state out."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, characters)

    def forward(self, text: Tensor, hidden: Hidden | None) -> tuple[Tensor, Hidden]:
        read, hidden = self.lstm(self.embedding(text), hidden)
        return self.last(read), hidden


def source() -> tuple[Tensor, int]:
    """Return the source of ``textwrap`` as numbers, and how many different characters it has."""
    text = inspect.getsource(textwrap)
    known = sorted(set(text))
    return torch.tensor([known.index(character) for character in text]), len(known)


def pieces(text: Tensor, columns: int) -> list[Batch]:
    """Cut a text into columns, and these into batches of some lines: each batch continues where the last one ended."""
    lines = text[: len(text) // columns * columns].view(columns, -1).t()
    return list(zip(lines[:-1].split(LENGTH), lines[1:].split(LENGTH), strict=True))


def next_character_loss(prediction: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(prediction.flatten(0, 1), targets.flatten())


def plateau(optimizer: Optimizer) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, factor=0.25, patience=0, threshold=0)


class LanguageModel(TrainManager):
    """Carry the hidden state; each epoch and each evaluation begins without one."""

    hidden: Hidden | None = None

    def pre_train_step_epoch(self) -> None:
        self.hidden = None

    def around_eval_step_epoch(self) -> Iterator[None]:
        kept, self.hidden = self.hidden, None
        yield
        self.hidden = kept

    def model_forward(self, inputs: Tensor, model: Reader) -> Tensor:
        prediction, (state, cell) = model(inputs, self.hidden)
        self.hidden = state.detach(), cell.detach()
        return prediction  # type: ignore[no-any-return]


def manager() -> TrainManager:
    text, characters = source()
    return LanguageModel(
        model=Reader(characters),
        loss=next_character_loss,
        optimizer=lambda parameters: SGD(parameters, lr=LEARNING_RATE),
        train_data=pieces(text[:-3000], columns=16),
        eval_data={"valid": pieces(text[-3000:], columns=8)},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            ClipGradients(LARGEST_NORM),
            LRSchedule(plateau, monitor="valid/loss"),
            Log(every=LOG_EVERY, show={"loss": "loss", "rate": "learning_rates"}, counts=("epoch", "batch"), rate=None),
        ],
    )


def main() -> None:
    """Train, and print how well the model knows the text that it has not seen, and the last learning rate."""
    torch.manual_seed(0)
    tm = manager()
    result = tm.train()
    rate = tm.optimizers["optimizer"].param_groups[0]["lr"]
    print(f"validation loss {result.metrics['valid']['loss']:.3f}, learning rate {rate}")


if __name__ == "__main__":
    main()
