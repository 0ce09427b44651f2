"""The layers that an optimizer trains, found once, and again after its parameters have changed."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import NamedTuple, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.model.layers import layers_of
from train_manager.model.optimizers import parameters_in
from train_manager.model.per_object import PerObject


class TrainedLayers(NamedTuple):
    """The parameters of an optimizer, and the layers that they belong to."""

    parameters: Sequence[Tensor]  # layer by layer
    labels: list[str]  # of the layers, in the order of the model
    parts_of: list[int]  # for each parameter, the number of its layer
    counts: list[int]  # how many numbers the parameters of each layer have
    order: Sequence[Tensor]  # the parameters in the order of the optimizer

    def are_of(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer still has these parameters, and no other ones."""
        present = [*parameters_in(optimizer)]
        # By `is`: `==` of tensors compares their numbers.
        return len(present) == len(self.order) and all(map(is_, present, self.order))


def trained_layers(model: nn.Module, optimizer: Optimizer) -> TrainedLayers:
    """Return the layers of a model that an optimizer trains.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> trained_layers(net, torch.optim.SGD(net[1].parameters(), lr=0.1))[1:4]
    (['1 Linear'], [0, 0], [4])
    """
    layers = layers_of(model, optimizer)
    return TrainedLayers(
        [parameter for layer in layers for parameter in layer.parameters],
        [layer.label for layer in layers],
        [number for number, layer in enumerate(layers) for _ in layer.parameters],
        [sum(parameter.numel() for parameter in layer.parameters) for layer in layers],
        [*parameters_in(optimizer)],
    )


@final
class LayersOf:
    """Finds the layers of each optimizer once, and again after the optimizer has got other parameters."""

    def __init__(self) -> None:
        self._layers: PerObject[Optimizer, TrainedLayers] = PerObject()

    def of(self, optimizer: Optimizer, model: nn.Module) -> TrainedLayers:
        """Return the layers of a model that an optimizer trains."""
        layers = self._layers.get(optimizer)
        if layers is None or not layers.are_of(optimizer):
            layers = self._layers[optimizer] = trained_layers(model, optimizer)
        return layers
