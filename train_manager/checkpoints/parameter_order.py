"""The parameters of an optimizer by their names: a saved state is brought into their order, or said not to fit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from train_manager.checkpoints.fit import class_misfit, listed, plain_name


def parameter_names(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    """Return the names of all parameters by their ids; of one that is tied, the first of its names by the alphabet.

    Args:
        modules: each with what its names begin with.
    """
    found: dict[int, str] = {}
    for prefix, module in modules.items():
        named = [(prefix + plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)]
        found = {id(one): name for name, one in sorted(named, key=lambda pair: pair[0], reverse=True)} | found
    return found


def parameters_of(optimizer: Optimizer, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the parameters of each group of an optimizer: their names and shapes, in its order."""
    number = count()
    return [
        {names.get(id(one), f"#{place}"): _shape(one) for one, place in zip(group["params"], number, strict=False)}
        for group in optimizer.param_groups
    ]


def _shape(parameter: Tensor) -> list[int] | None:
    return None if is_lazy(parameter) else list(parameter.shape)


def parameter_misfit(label: str, optimizer: Optimizer, saved: Mapping[str, Any], fit: Any, names: Any) -> str | None:
    """Say how the parameters of an optimizer differ from those of a saved one; None if they do not."""
    here = [len(group["params"]) for group in optimizer.param_groups]
    there = [len(group["params"]) for group in saved["param_groups"]]
    if here != there:
        return f"{label} has groups of {here} parameters here, but of {there} in the checkpoint"
    own = parameters_of(optimizer, names)
    for number, (group, other) in enumerate(zip(own, [] if fit is None else fit["parameters"], strict=False)):
        only, gone = [one for one in group if one not in other], [one for one in other if one not in group]
        if only:
            where = f" in group {number}" if len(own) > 1 else ""
            return f"{label} trains {listed(only)}{where} here, but {listed(gone)} in the checkpoint"
    if isinstance(optimizer, LBFGS) and fit is not None and [*map(list, own)] != [*map(list, fit["parameters"])]:
        return f"{label} has its parameters in another order, which LBFGS has all in one vector"
    return None


def state_for(optimizer: Optimizer, saved: Mapping[str, Any], fit: Any, names: Any) -> dict[str, Any] | None:
    """Return a saved state of an optimizer in the order of its parameters here; None if it cannot take it.

    What a parameter of another name or shape had is left out: that one begins anew.
    """
    if class_misfit("", optimizer, fit) or len(optimizer.param_groups) != len(saved["param_groups"]):
        return None
    if fit is None or isinstance(optimizer, LBFGS):
        return None if parameter_misfit("", optimizer, saved, fit, names) else dict(saved)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    shapes = {name: shape for group in fit["parameters"] for name, shape in group.items()}
    known, new = dict(zip(shapes, numbers, strict=False)), count(1 + max(numbers, default=0))
    groups = []
    for own, group in zip(parameters_of(optimizer, names), saved["param_groups"], strict=True):
        fitting = {name for name, shape in own.items() if name in known and shapes[name] in (shape, None)}
        params = [known[name] if name in fitting else next(new) for name in own]
        groups.append({**{key: group[key] for key in group if key != "param_names"}, "params": params})
    left = set(numbers) - {number for group in groups for number in group["params"]}
    state = {number: one for number, one in saved["state"].items() if number not in left}
    return {**saved, "state": state, "param_groups": groups}


def gradients_for(optimizer: Optimizer, gradients: list[Any], fit: Any, names: Any) -> list[Any]:
    """Return gradients of a saved optimizer in the order of its parameters here; None for one that does not fit."""
    if fit is None:
        return gradients
    shapes = {name: shape for group in fit["parameters"] for name, shape in group.items()}
    known = dict(zip(shapes, gradients, strict=True))
    here = [pair for group in parameters_of(optimizer, names) for pair in group.items()]
    return [known[name] if name in known and shapes[name] in (shape, None) else None for name, shape in here]
