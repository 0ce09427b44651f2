"""How optimizers and schedules were made: their classes, and their options that are plain values.

A user may give a lambda or a function to make one, of which only the name can be recorded; and the state of one has no
class. So the made objects are looked at: for the record of a run, and for a checkpoint, with which a later program is
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from train_manager.rebuilding.record_tree import NOT_REBUILDABLE, Tree
from train_manager.rebuilding.recorded_rows import expression
from train_manager.rebuilding.signatures import signature_of
from train_manager.rebuilding.value_trees import trees_of

# Names of groups and schedules that are parameters or progress, and not options of the user; "fused" goes by device.
NOT_OPTIONS: Final = ("params", "param_names", "base_lrs", "last_epoch", "fused", "optimizer")

Made = dict[str, Any]
"""The class of a component, and its options as texts by name."""


def config_of(component: Any) -> Made:
    """Return the class and the options of an optimizer or a schedule that has not made a step yet.

    >>> import torch
    >>> config_of(torch.optim.SGD([torch.zeros(1)], lr=0.5))["options"]["lr"]
    '0.5'
    """
    options = made_tree(component)["arguments"]
    return {"class": class_of(component), "options": {name: expression(tree) for name, tree in options.items()}}


def class_of(component: Any) -> str:
    """Return the name of a class, with the schedules inside a schedule: ``SequentialLR(LinearLR, StepLR)``.

    Of a combined optimizer, the classes of its groups: ``CombinedOptimizer(Muon, AdamW, AdamW)``.
    """
    kinds = [class_of(part) for part in _parts_of(component) for _ in part.param_groups]
    inside = ", ".join(kinds or map(class_of, _inside(component)))
    return f"{type(component).__name__}({inside})" if inside else type(component).__name__


def made_tree(component: Any, *, is_brief: bool = False) -> Tree:
    """Return an optimizer or a schedule as a recorded object.

    Args:
        component: the optimizer or the schedule.
        is_brief: leave out options that the constructor does not have, or that are its defaults.
    """
    kind, values = type(component), _options(component)
    if is_brief:
        values = _without_defaults(kind, values)
    trees = trees_of(values)
    arguments = {
        name: tree for name, tree in trees.items() if not isinstance(tree, dict) or NOT_REBUILDABLE not in tree
    }
    if inside := _inside(component):
        arguments["schedulers"] = [made_tree(one, is_brief=is_brief) for one in inside]
    if is_brief and (parts := _parts_of(component)):
        arguments["parts"] = [made_tree(part, is_brief=True) for part in parts]
    return {"$object": f"{kind.__module__}:{kind.__qualname__}", "arguments": arguments}


def _inside(schedule: Any) -> list[Any]:
    parts = getattr(schedule, "_schedulers", None)  # SequentialLR and ChainedScheduler hold schedules
    return list(parts) if isinstance(parts, list | tuple) else []


def _parts_of(optimizer: Any) -> tuple[Any, ...]:
    from train_manager.model.combined_optimizer import CombinedOptimizer  # late: readers of a record need no torch

    return optimizer.parts if isinstance(optimizer, CombinedOptimizer) else ()


def _options(component: Any) -> dict[str, Any]:
    """Return the options that are plain values, by name; an option of several groups is a tuple if they differ."""
    groups = getattr(component, "param_groups", None)
    if groups is not None:
        names = dict.fromkeys(name for group in groups for name in group if not name.startswith("initial_"))
        # A schedule changes lr as soon as it is made, and keeps the lr of the user as initial_lr.
        found = {name: _common([group.get(f"initial_{name}", group.get(name)) for group in groups]) for name in names}
    else:
        # Attributes with an underscore are the bookkeeping of torch, unless an argument has their name.
        attributes, signature = getattr(component, "__dict__", {}), signature_of(type(component))
        found = {name: _argument_of(component, name) for name in (signature.parameters if signature else ())}
        found |= {name: one for name, one in attributes.items() if not name.startswith("_") and name not in found}
    plain = {name: plain_of(value) for name, value in found.items() if name not in NOT_OPTIONS}
    return {name: values[0] for name, values in plain.items() if values}


def _argument_of(schedule: Any, name: str) -> Any:
    """Return the value of a schedule's argument: an attribute, a list for the groups, or an option of the groups."""
    attributes = vars(schedule)
    # LambdaLR keeps its `lr_lambda` as the list `lr_lambdas`, one for each group.
    for place in (name, f"_{name}", f"{name}s"):
        if place in attributes:
            value = attributes[place]
            return _common(value) if place == f"{name}s" and isinstance(value, list) and value else value
    groups = getattr(attributes.get("optimizer"), "param_groups", None) or [{}]
    return _common([group.get(name) for group in groups])


def _common(values: list[Any]) -> Any:
    return values[0] if all(_is_equal(value, values[0]) for value in values) else tuple(values)


def plain_of(value: Any) -> list[Any]:
    """Return a value that can be written and compared, as the one item of a list; else none."""
    if isinstance(value, Counter):  # MultiStepLR keeps its milestones so
        return [sorted(value.elements())]
    if type(value) in (list, tuple):
        items = [plain for item in value for plain in plain_of(item)]
        # A sequence with an item that cannot be compared (such as a function) is left out as a whole.
        return [type(value)(items)] if len(items) == len(value) else []
    # A number on a GPU would have to wait for the device.
    if hasattr(value, "numel") and value.device.type == "cpu" and value.numel() == 1:
        return [value.item()]
    return [value] if value is None or type(value) in (bool, int, float, str) else []


def _without_defaults(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    signature = signature_of(kind)
    defaults = {p.name: p.default for p in signature.parameters.values()} if signature else dict.fromkeys(values)
    given = {name: value for name, value in values.items() if name in defaults and value is not None}
    return {name: value for name, value in given.items() if not _is_equal(value, defaults[name])}


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # the comparison of a tensor with several numbers has no truth value; a user's may raise
        return one is other
