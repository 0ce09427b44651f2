"""The outputs of the modules of a model in one forward pass, measured without a wait for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn

from train_manager.model.layers import class_name
from train_manager.model.modules import OWN_OF_PYTORCH
from train_manager.telling.errors import InputError

EXAMPLES: Final = 4  # how many examples of a batch are looked at
EDGE: Final = 0.02  # of the width of a range: a number that is nearer to an end is saturated
CUTTING: Final = (nn.ReLU, nn.ReLU6, nn.Threshold, nn.Hardswish)  # modules that return 0 for what is below 0
# The lowest and the highest output of modules that saturate.
RANGES: Final[dict[type[nn.Module], tuple[float, float]]] = {
    nn.Tanh: (-1.0, 1.0),
    nn.Softsign: (-1.0, 1.0),
    nn.Sigmoid: (0.0, 1.0),
    nn.Hardsigmoid: (0.0, 1.0),
}
PASSING: Final = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)  # modules that compute nothing
# For each statistic, whether it says something about a module.
BELONGS: Final[dict[str, Callable[[nn.Module], bool]]] = {
    "activation_spread": lambda module: True,
    "dead_units": lambda module: isinstance(module, CUTTING),
    "saturated": lambda module: type(module) in RANGES,
}
Vectors = dict[str, tuple[list[str], Tensor]]
"""By name of a statistic: the labels of modules, and a number for each."""


@final
class Activations:
    """Looks at the outputs of modules that are in train mode and have none inside, while the ``with`` block is open.

    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    >>> with torch.no_grad(), Activations(net) as activations:
    ...     for parameter in net.parameters():
    ...         _ = parameter.fill_(-1.0)
    ...     _ = net(torch.ones(8, 1))
    >>> activations.vectors()["dead_units"]
    (['1 ReLU'], tensor([1.]))
    """

    def __init__(self, model: nn.Module) -> None:
        leaves = {module: name for name, module in model.named_modules() if not [*module.children()]}
        leaves = {module: name for module, name in leaves.items() if not isinstance(module, PASSING)}
        self._labels = {module: f"{name} {class_name(module)}".strip() for module, name in leaves.items()}
        has_channels = any(isinstance(module, nn.Conv1d | nn.ConvTranspose1d) for module in leaves)
        # The dimension of units in an output of three dimensions: (batch, channels, length) after a convolution, or
        # (batch, tokens, features) in a transformer.
        self._units = 1 if has_channels else -1
        self._found: dict[str, dict[nn.Module, Tensor]] = {name: {} for name in BELONGS}
        self._removes: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        for module in self._labels:
            # In eval mode, a hook may make torch leave a fast path (of `nn.TransformerEncoder`, say): the outputs would
            # differ in their last bits because somebody looks.
            if module.training:
                self._removes.append(module.register_forward_hook(self._look).remove)
        return self

    def __exit__(self, *error: object) -> None:
        for remove in self._removes:
            remove()

    def _look(self, module: nn.Module, args: Any, output: Any) -> None:
        while isinstance(output, tuple) and output:  # an LSTM returns its state too; a PackedSequence is a tuple
            output = output[0]
        if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() < 2:
            return
        seen = output.detach()[:EXAMPLES].float()
        self._found["activation_spread"][module] = seen.std(correction=0)
        if isinstance(module, CUTTING):
            # A unit is dead if it is 0 in all examples, at all positions.
            is_zero = (seen == 0).movedim(self._units if seen.dim() == 3 else 1, 0).flatten(1)
            self._found["dead_units"][module] = is_zero.all(1).mean(dtype=torch.float)
        if type(module) in RANGES:
            low, high = RANGES[type(module)]
            room = EDGE * (high - low)
            self._found["saturated"][module] = ((seen < low + room) | (seen > high - room)).mean(dtype=torch.float)

    def vectors(self) -> Vectors:
        """Return the statistics of all modules; nan for modules that were not called."""
        return {name: self._vector(BELONGS[name], found) for name, found in self._found.items() if found}

    def _vector(self, belongs: Callable[[nn.Module], bool], found: dict[nn.Module, Tensor]) -> tuple[list[str], Tensor]:
        modules = [module for module in self._labels if belongs(module)]
        nan = torch.full((), torch.nan, device=next(iter(found.values())).device)
        numbers = [found.get(module, nan).to(nan.device) for module in modules]
        return [self._labels[module] for module in modules], torch.stack(numbers)


def require_not_compiled(model: nn.Module, asked_by: str) -> None:
    """Refuse a model of ``torch.compile``, which does not run hooks that are registered later.

    Raises:
        InputError: the model, or a module of it, is compiled.
    """
    if any(OWN_OF_PYTORCH in one._modules or one._compiled_call_impl for one in model.modules()):
        what = f"{asked_by} cannot see into the model, because torch.compile leaves out the hooks that it needs"
        cure = f"leave {asked_by} out, or train some steps without torch.compile to look at the model"
        raise InputError(what, name="model", asked_by=asked_by, cure=cure)
