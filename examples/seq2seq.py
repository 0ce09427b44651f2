"""From sequence to sequence: an encoder and a decoder with attention that write digits backwards.

    python examples/seq2seq.py

The sequences have different lengths, so batches are padded. Each token counts alike, whatever batch it is in: a loss is
the mean over tokens, and a mean of losses is weighted by their number. The rate rises, and falls with the root of the
step, as in Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

from train_manager import TrainManager
from train_manager.extensions import Log, LRSchedule

EPOCHS, EXAMPLES = 3, 5120
WARM_UP, LOG_EVERY = 50, 40
PAD, BEGIN, END, DIGITS = 0, 1, 2, 10
WIDTH = 48

Batch = tuple[tuple[Tensor, Tensor], Tensor]  # what is read, what was written so far, and what comes next


class Translator(nn.Module):
    """A sequence and the beginning of its translation in, scores for each next token out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3 + DIGITS, WIDTH, padding_idx=PAD)
        self.encoder = nn.GRU(WIDTH, WIDTH // 2, bidirectional=True, batch_first=True)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.last = nn.Linear(2 * WIDTH, 3 + DIGITS)

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        read, _ = self.encoder(self.embedding(source))
        state, _ = self.decoder(self.embedding(written))
        is_token = (source != PAD).unsqueeze(1)
        found = F.scaled_dot_product_attention(state, read, read, attn_mask=is_token)
        scores: Tensor = self.last(torch.cat([state, found], dim=2))
        return scores


class Sequences(Dataset[Tensor]):
    """Random digits, 2 to 8 in a row."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(2, 9, (n,), generator=generator)
        self.digits = 3 + torch.randint(DIGITS, (n, 8), generator=generator)

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> Tensor:
        return self.digits[index, : self.lengths[index]]


def padded(examples: list[Tensor]) -> Batch:
    begin, end = torch.tensor([BEGIN]), torch.tensor([END])
    translations = [torch.cat([begin, sequence.flip(0), end]) for sequence in examples]
    source, target = (pad_sequence(some, batch_first=True, padding_value=PAD) for some in (examples, translations))
    return (source, target[:, :-1]), target[:, 1:]


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    train, test = Sequences(EXAMPLES, seed=0), Sequences(500, seed=1)
    return (
        DataLoader(train, batch_size=64, shuffle=True, collate_fn=padded),
        DataLoader(test, batch_size=64, collate_fn=padded),
    )


def loss_per_token(prediction: Tensor, targets: Tensor) -> Tensor:
    total = F.cross_entropy(prediction.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    return total / (targets != PAD).sum()


def rate_factor(step: int) -> float:
    return min((step + 1) / WARM_UP, math.sqrt(WARM_UP / (step + 1)))


class Translation(TrainManager):
    """Count tokens in place of examples, and print the mean loss of each epoch."""

    def get_true_batch_size(self, targets: Tensor) -> Tensor:
        return (targets != PAD).sum()

    def post_train_step_epoch(self, epoch_num: int, train_result: dict[str, float]) -> None:
        print(f"epoch {epoch_num}, training: loss {train_result['loss']:.4g}")


def manager() -> TrainManager:
    train, test = loaders()
    return Translation(
        model=Translator(),
        loss=loss_per_token,
        optimizer=lambda parameters: Adam(parameters, lr=1e-2),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            LRSchedule(lambda optimizer: LambdaLR(optimizer, rate_factor), per="step"),
            Log(every=LOG_EVERY, show={"loss": "loss", "rate": "learning_rates"}, counts=("epoch", "batch"), rate=None),
        ],
    )


def main() -> None:
    """Train, and write a sequence backwards."""
    torch.manual_seed(0)
    tm = manager()
    tm.train()
    source, written = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([[BEGIN]])
    while written[0, -1] != END and written.shape[1] < 12:
        scores = tm.predict([((source, written), None)])
        written = torch.cat([written, scores[:, -1:].argmax(dim=2)], dim=1)
    print((source[0] - 3).tolist(), "->", (written[0, 1:-1] - 3).tolist())


if __name__ == "__main__":
    main()
