"""The parameters of an optimizer, by the modules that own them: the lines in a picture of layers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.model.modules import plain_name

OUTSIDE: Final = "outside of the model"  # the label of parameters that no module of the model owns


class OwnedParameters(NamedTuple):
    """A module that owns parameters."""

    label: str  # its name in the model and its class: "0.1 BatchNorm2d"; only the class, if it is the model itself
    parameters: list[Tensor]  # without the ones of modules inside it; a shared parameter is of the first module only


def layers_of(model: nn.Module, optimizer: Optimizer | None = None) -> list[OwnedParameters]:
    """Return the modules that own the parameters of an optimizer, in the order of the model.

    Frozen parameters that the optimizer has are there too. A weight that several modules share is of the first one.
    Parameters that no module of the model owns, such as parameters of a loss, come last, as one layer.

    >>> net = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), nn.Flatten(), nn.Linear(2, 2))
    >>> [(label, len(parameters)) for label, parameters in layers_of(net)]
    [('0.0 Conv2d', 2), ('0.1 BatchNorm2d', 2), ('2 Linear', 2)]

    Args:
        model: the module.
        optimizer: its parameters are returned; None stands for all parameters of the model.
    """
    wanted = None if optimizer is None else [one for group in optimizer.param_groups for one in group["params"]]
    # The parameters that no module so far owns, by id: tensors are compared element by element.
    left: dict[int, Any] = {id(one): one for one in (model.parameters() if wanted is None else wanted)}
    found: dict[str, list[Tensor]] = {}
    modules = dict(model.named_modules())
    for name, module in modules.items():
        # The weight of a parametrized layer is in `layer.parametrizations.weight`, but belongs to the layer.
        owner = name.partition(".parametrizations.")[0]
        for parameter in module.parameters(recurse=False):
            if left.pop(id(parameter), None) is not None:
                found.setdefault(_label(owner, modules[owner]), []).append(parameter)
    outside = [OwnedParameters(OUTSIDE, [*left.values()])] if left else []
    return [OwnedParameters(label, parameters) for label, parameters in found.items()] + outside


def _label(name: str, module: nn.Module) -> str:
    """Return the label of a module; a compiled module has the name that it has without ``torch.compile``."""
    return f"{plain_name(name)} {class_name(module)}".strip()


def class_name(module: nn.Module) -> str:
    """Return the name of a module's class; of a sharded module, of the class that it was made of."""
    kind = type(module)
    # torch's fully_shard makes `class FSDPLinear(FSDPModule, Linear)` the class of a Linear.
    is_sharded = kind.__bases__[0].__name__ == "FSDPModule"
    return (kind.__bases__[1] if is_sharded else kind).__name__
