"""The part of a model from a file that leads to one module."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from train_manager.data.random_state import preserve_random_state
from train_manager.learner.model import FileModel
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
