"""A small BERT of Hugging Face transformers, with random weights: batches are dicts, and the model makes the loss.

    pip install transformers
    python examples/dict_batches.py

A batch goes to the model by keyword; the ``.loss`` of its output is what is trained. The sequences are random numbers,
labelled by whether a 7 is among them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from train_manager import TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 3
LOG_EVERY = 8
LENGTH, NUMBERS = 12, 20

Example = dict[str, Tensor]


def network() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    network: nn.Module = BertForSequenceClassification(
        BertConfig(vocab_size=NUMBERS, max_position_embeddings=LENGTH, **sizes)
    )
    return network


class Sequences(Dataset[Example]):
    """Sequences of random numbers, labelled by whether a 7 is among them."""

    def __init__(self, n: int, seed: int) -> None:
        self.numbers = torch.randint(NUMBERS, (n, LENGTH), generator=torch.Generator().manual_seed(seed))
        self.labels = (self.numbers == 7).any(dim=1).long()

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Example:
        mask = torch.ones(LENGTH, dtype=torch.long)  # no padding: all numbers are read
        return {"input_ids": self.numbers[index], "attention_mask": mask, "labels": self.labels[index]}


def sequences() -> tuple[DataLoader[Example], DataLoader[Example]]:
    """Return sequences to train on, in a new random order each epoch, and sequences to test with."""
    train, test = Sequences(512, seed=0), Sequences(256, seed=1)
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=128)


def accuracy(prediction: Any, batch: Example) -> Tensor:
    return prediction.logits.argmax(dim=1) == batch["labels"]  # type: ignore[no-any-return]


def manager() -> TrainManager:
    train, test = sequences()
    return TrainManager(
        model=network(),
        optimizer=lambda parameters: AdamW(parameters, lr=5e-3),
        train_data=train,
        eval_data={"test": test},
        eval_at="epoch",
        epochs=EPOCHS,
        extensions=[
            Log(every=LOG_EVERY, counts=("epoch", "batch"), rate=None),
            Metrics(eval={"accuracy": accuracy}),
        ],
    )


def main() -> None:
    """Train, and print the accuracy on the sequences held out."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"test accuracy {result.metrics['test']['accuracy']:.1%}")


if __name__ == "__main__":
    main()
