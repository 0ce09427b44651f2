"""Self-supervised tasks: what a module can learn from inputs without labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from train_manager.learner.augment import Augment
from train_manager.learner.contrast import contrast
from train_manager.learner.encoder import Encoder
from train_manager.rebuilding.recorded import recorded


class Task(nn.Module):
    """Base class of the tasks that a file may name in ``self_supervised``; one of your own is ``@recorded``.

    A subclass writes ``forward(inputs)``, which returns the loss of a batch of inputs, and may have modules of its own.

    Args:
        encoder: returns what the trained module gives for some inputs, one row per example.
        augment: ``augment.views(inputs)`` returns changed copies; None if no dataset has ``augment``.
    """

    def __init__(self, encoder: Encoder, augment: Augment | None) -> None:
        super().__init__()
        self.encoder, self.augment = encoder, augment

    def view(self, inputs: Any) -> Any:
        """Return a changed copy of inputs; the inputs themselves without ``augment``."""
        return inputs if self.augment is None else self.augment.views(inputs)


@recorded
class SimCLR(Task):
    """Learn that two changed copies of an example belong together (Chen et al. 2020, arXiv:2002.05709).

    Args:
        encoder: the trained module.
        augment: makes the copies.
        temperature: of ``contrast``.
        features: the width of the space in which the copies are compared.
    """

    def __init__(self, encoder: Encoder, augment: Augment | None, temperature: float = 0.5, features: int = 64) -> None:
        super().__init__(encoder, augment)
        self.temperature = temperature
        self.head = nn.Sequential(
            nn.Linear(encoder.width, encoder.width), nn.ReLU(), nn.Linear(encoder.width, features)
        )

    def forward(self, inputs: Any) -> Tensor:
        """Return the contrast of two views of the inputs."""
        one, other = (self.head(self.encoder(self.view(inputs)).flatten(1)) for _ in range(2))
        return contrast(one, other, self.temperature)


@recorded
class Masked(Task):
    """Learn to fill in values that are set to zero.

    The denoising autoencoder of Vincent et al. 2008; the error is taken at these values alone, as by He et al. 2021,
    arXiv:2111.06377.

    Args:
        encoder: the trained module, of a model with one input.
        augment: is not used.
        share: of the values that are set to zero.
    """

    def __init__(self, encoder: Encoder, augment: Augment | None, share: float = 0.5) -> None:
        super().__init__(encoder, augment)
        self.share = share
        self.head = nn.Linear(encoder.width, encoder.values)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the mean squared error at the values that were set to zero."""
        is_hidden = torch.rand_like(inputs) < self.share
        filled = self.head(self.encoder(inputs.masked_fill(is_hidden, 0.0)).flatten(1))
        errors = (filled - inputs.flatten(1)).square() * is_hidden.flatten(1)
        mean: Tensor = errors.sum() / is_hidden.sum().clamp(min=1)
        return mean


@recorded
def loss_of_task(prediction: Tensor) -> Tensor:
    """Return what a task returns, which is its loss."""
    return prediction
