"""Self-supervised tasks: what a module of a model can learn from inputs without labels."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.learner.model import FileModel
from train_manager.learner.objectives import contrast
from train_manager.learner.transforms import Augment
from train_manager.loop.modes import mode
from train_manager.rebuilding.recorded import recorded


@final
@recorded
class Encoder(nn.Module):
    """The modules that lead to one module of a model, and this one; they are those of the model, not copies.

    Attributes:
        width: how many values per example the module gives.
        values: how many values an example has, over all inputs.

    Args:
        model: the model.
        at: the name of the module.
    """

    def __init__(self, model: FileModel, at: str) -> None:
        super().__init__()
        self.at = at
        self.parts = nn.ModuleDict({name: getattr(model, name) for name in model.leading_to(at)})
        self._values_of = model.values_of  # a method of the model, so that the model is not one of the modules here
        # In eval mode, or the statistics of BatchNorm would take the examples in.
        with preserve_random_state(), mode(model, training=False):
            examples = model.examples(2)
            self.values = sum(tensor[0].numel() for tensor in examples.values())
            self.width = self(_bare(examples)).flatten(1).shape[1]

    def forward(self, inputs: Any) -> Tensor:
        """Return what the module gives."""
        return self._values_of(inputs, [self.at])[self.at]


def _bare(examples: dict[str, Tensor]) -> Any:
    return next(iter(examples.values())) if len(examples) == 1 else examples


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
