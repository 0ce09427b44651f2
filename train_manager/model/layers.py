"""The parameters of an optimizer, by the modules that own them: what a picture of layers has a line for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

OUTSIDE: Final = "outside of the model"
OWN_OF_PYTORCH: Final = "_orig_mod"  # the module inside of one that torch.compile has made


class OwnedParameters(NamedTuple):
    """A module that owns parameters.

    Attributes:
        label: its name in the model and its class: "0.1 BatchNorm2d"; only the class, if it is the model itself.
        parameters: its own, without those of the modules inside it, and each only where it comes first.
    """

    label: str
    parameters: list[Tensor]


def layers_of(model: nn.Module, optimizer: Optimizer | None = None) -> list[OwnedParameters]:
    """Return the modules that own the parameters of an optimizer, in the order of the model.

    Frozen parameters that the optimizer has are there too. A weight that several modules share is of the first one.
    Parameters that are of no module of the model, such as those of a loss, come last, as one layer.

    >>> net = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), nn.Flatten(), nn.Linear(2, 2))
    >>> [(label, len(parameters)) for label, parameters in layers_of(net)]
    [('0.0 Conv2d', 2), ('0.1 BatchNorm2d', 2), ('2 Linear', 2)]

    Args:
        model: the module.
        optimizer: whose parameters are meant; None for all of the model.
    """
    wanted = None if optimizer is None else [one for group in optimizer.param_groups for one in group["params"]]
    left: dict[int, Any] = {id(one): one for one in (model.parameters() if wanted is None else wanted)}
    found: dict[str, list[Tensor]] = {}
    modules = dict(model.named_modules())
    for name, module in modules.items():
        owner = name.partition(".parametrizations.")[0]  # else each parametrization would be a layer
        for parameter in module.parameters(recurse=False):
            if left.pop(id(parameter), None) is not None:
                found.setdefault(_label(owner, modules[owner]), []).append(parameter)
    outside = [OwnedParameters(OUTSIDE, [*left.values()])] if left else []
    return [OwnedParameters(label, parameters) for label, parameters in found.items()] + outside


def _label(name: str, module: nn.Module) -> str:
    whole = ".".join(part for part in name.split(".") if part != OWN_OF_PYTORCH)
    return f"{whole} {type(module).__name__}".strip()
