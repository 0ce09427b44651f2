"""The parameters of an optimizer by their names: a saved state is brought into their order, or found not to fit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from train_manager.checkpoints.fit import class_misfit, list_names
from train_manager.model.modules import plain_name


def parameter_names(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    """Return the names of all parameters by their ids; a tied parameter has the alphabetically first of its names.

    Args:
        modules: the modules by the prefix of their names.
    """
    found: dict[int, str] = {}
    for prefix, module in modules.items():
        named = [(prefix + plain_name(name), one) for name, one in module.named_parameters(remove_duplicate=False)]
        # The last entry of a dict counts: sorted in reverse, that is the first name by the alphabet; `| found` lets an
        # earlier module win.
        found = {id(one): name for name, one in sorted(named, key=lambda pair: pair[0], reverse=True)} | found
    return found


def parameters_of(optimizer: Optimizer, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return the parameters of each group of an optimizer: their names and shapes, in its order."""
    number = count()  # runs on from group to group
    return [
        # A parameter of no module has no name; its place among all parameters stands for it: "#3".
        {names.get(id(one), f"#{place}"): _shape(one) for one, place in zip(group["params"], number, strict=False)}
        for group in optimizer.param_groups
    ]


def _shape(parameter: Tensor) -> list[int] | None:
    return None if is_lazy(parameter) else list(parameter.shape)


def parameter_misfit(label: str, optimizer: Optimizer, saved: Mapping[str, Any], fit: Any, names: Any) -> str | None:
    """Return how the parameters of an optimizer differ from a saved one's, as an error text; None if they fit."""
    here = [len(group["params"]) for group in optimizer.param_groups]
    there = [len(group["params"]) for group in saved["param_groups"]]
    if here != there:
        return f"{label} has groups of {here} parameters here, but of {there} in the checkpoint"
    # The numbers of parameters agree, so torch would load the state: only the names show that it is another one.
    own = parameters_of(optimizer, names)
    for number, (group, other) in enumerate(zip(own, [] if fit is None else fit["parameters"], strict=False)):
        only, gone = [one for one in group if one not in other], [one for one in other if one not in group]
        if only:
            where = f" in group {number}" if len(own) > 1 else ""
            return f"{label} trains {list_names(only)}{where} here, but {list_names(gone)} in the checkpoint"
    # LBFGS keeps all parameters in one vector, so its state cannot be sorted by names.
    if isinstance(optimizer, LBFGS) and fit is not None and [*map(list, own)] != [*map(list, fit["parameters"])]:
        return f"{label} has its parameters in another order, which LBFGS has all in one vector"
    return None


def state_for(optimizer: Optimizer, saved: Mapping[str, Any], fit: Any, names: Any) -> dict[str, Any] | None:
    """Return a saved state in the order of the optimizer's parameters here; None if the optimizer cannot take it.

    A parameter whose name or shape the saved state does not have begins anew.
    """
    if class_misfit("", optimizer, fit) or len(optimizer.param_groups) != len(saved["param_groups"]):
        return None
    # Without names, a state fits as a whole or not at all: of an optimizer that an attribute holds.
    if fit is None or isinstance(optimizer, LBFGS):
        return None if parameter_misfit("", optimizer, saved, fit, names) else dict(saved)
    # torch numbers the parameters of a state through all groups; names come in the same order.
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    shapes = {name: shape for group in fit["parameters"] for name, shape in group.items()}
    # Parameters that begin anew get numbers that no saved entry has, so load_state_dict finds no state for them.
    known, new = dict(zip(shapes, numbers, strict=False)), count(1 + max(numbers, default=0))
    groups = []
    for own, group in zip(parameters_of(optimizer, names), saved["param_groups"], strict=True):
        fitting = {name for name, shape in own.items() if name in known and shapes[name] in (shape, None)}
        params = [known[name] if name in fitting else next(new) for name in own]
        groups.append({**{key: group[key] for key in group if key != "param_names"}, "params": params})
    # Entries of parameters that are gone here are removed; load_state_dict would keep them for ever.
    left = set(numbers) - {number for group in groups for number in group["params"]}
    state = {number: one for number, one in saved["state"].items() if number not in left}
    return {**saved, "state": state, "param_groups": groups}


def gradients_for(optimizer: Optimizer, gradients: list[Any], parameters: Any, names: Any) -> list[Any]:
    """Return gradients of saved parameters in the order of the optimizer's here; None for one that does not fit."""
    shapes = {name: shape for group in parameters for name, shape in group.items()}
    # The same sorting by names and shapes as in `state_for`, for gradients that were saved amid an accumulation.
    known = dict(zip(shapes, gradients, strict=True))
    here = [pair for group in parameters_of(optimizer, names) for pair in group.items()]
    return [known[name] if name in known and shapes[name] in (shape, None) else None for name, shape in here]
