"""The optimizers and schedulers of a training as they were made: their classes, and options that are plain values.

What a user gives to make one may be a lambda or a function, of which only its name can be recorded. What is looked at
here are the objects that it has made, so that a comparison of runs can tell a rate of 0.1 from one of 0.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from train_manager.rebuilding.recorded import signature_of
from train_manager.rebuilding.tree import NOT_REBUILDABLE, Tree
from train_manager.rebuilding.value_trees import trees_of

DYNAMIC: Final = ("last_epoch", "fused")  # moves with the training; chosen by the device
MOST_LEVELS: Final = 5  # of schedulers in schedulers

Made = dict[str, Tree]
"""What was made, by the dotted path of the parameter that has made it."""


def made_objects(train_manager: Any) -> Made:
    """Return the optimizers and schedulers that a manager and its extensions have at present."""
    optimizers, schedulers = train_manager.optimizers, train_manager.lr_schedule
    is_sole = not isinstance(train_manager.optimizer, Mapping)
    found = {"optimizer" if is_sole else f"optimizer.{name}": _of_optimizer(one) for name, one in optimizers.items()}
    named = schedulers if isinstance(schedulers, Mapping) else {"": schedulers}
    found |= {f"lr_schedule.{name}".rstrip("."): _of_scheduler(one) for name, one in named.items() if one is not None}
    for name, extension in train_manager.extensions.items():
        scheduler = getattr(extension, "scheduler", None)
        if hasattr(scheduler, "step"):
            found[f"extensions.{name}.make"] = _of_scheduler(scheduler)
    return found


def untold(made: Made, parameters: Tree) -> Made:
    """Return what was made but is not told by recorded parameters, which name a class and its options."""
    return {path: tree for path, tree in made.items() if not _is_told(tree, _at(parameters, path.split(".")))}


def made_rows(made: Made, rows: Mapping[str, str]) -> Iterator[tuple[str, Tree]]:
    """Yield what was made, by the name of its row: that of the parameter, if there is nothing else to say of it."""
    for path, tree in made.items():
        is_free = rows.get(path, "<").startswith("<")
        yield (path if is_free else f"{path} made"), tree


# ---- one object ------------------------------------------------------------------------------------------------------


def _of_optimizer(optimizer: Any) -> Tree:
    """Return ``SGD(lr=0.1, momentum=0.9)`` as a tree; an option of several groups is a tuple if they differ."""
    groups = optimizer.param_groups
    names = getattr(optimizer, "defaults", None) or {name for group in groups for name in group if name != "params"}
    values = {name: _common([_first(group, name) for group in groups]) for name in names}
    return _tree(type(optimizer), values)


def _first(group: Mapping[str, Any], name: str) -> Any:
    """Return an option of a group; of a rate that a scheduler has changed, the first one."""
    return group.get(f"initial_{name}", group.get(name))


def _of_scheduler(scheduler: Any, level: int = 0) -> Tree:
    """Return ``StepLR(step_size=10)`` as a tree; one that consists of others has theirs."""
    signature = signature_of(type(scheduler))
    tree = _tree(
        type(scheduler), {name: _held(scheduler, name) for name in (signature.parameters if signature else ())}
    )
    parts = getattr(scheduler, "_schedulers", None)
    if isinstance(parts, list | tuple) and level < MOST_LEVELS:
        tree["arguments"]["schedulers"] = [_of_scheduler(part, level + 1) for part in parts]
    return tree


def _held(scheduler: Any, name: str) -> Any:
    """Return what a scheduler of torch has kept of an argument: itself, a list for the groups, or in the groups."""
    attributes = vars(scheduler)
    for place in (name, f"_{name}", f"{name}s"):
        if place in attributes:
            value = attributes[place]
            return _common(value) if place == f"{name}s" and isinstance(value, list) and value else value
    groups = getattr(attributes.get("optimizer"), "param_groups", None) or [{}]
    return _common([group.get(name) for group in groups])


def _common(values: list[Any]) -> Any:
    return values[0] if all(_is_equal(value, values[0]) for value in values) else tuple(values)


def _tree(kind: type, values: Mapping[str, Any]) -> Tree:
    """Return a class and those of its arguments that are plain values, and not its defaults."""
    signature = signature_of(kind)
    defaults = {p.name: p.default for p in signature.parameters.values()} if signature else dict.fromkeys(values)
    plain = {name: _plain(values[name]) for name in values if name in defaults and name not in DYNAMIC}
    given = {name: value for name, value in plain.items() if value is not None and not _is_equal(value, defaults[name])}
    trees = {name: tree for name, tree in trees_of(given).items() if not _is_unwritten(tree)}
    return {"object": f"{kind.__module__}:{kind.__qualname__}", "arguments": trees}


def _plain(value: Any) -> Any:
    """Return a number, a text, or a sequence of them; None for all else, and for a tensor that is not on the CPU."""
    if isinstance(value, Counter):  # the milestones of a MultiStepLR
        value = sorted(value.elements())
    if type(value) in (list, tuple):
        parts = [_plain(part) for part in value]
        return type(value)(parts) if all(part is not None for part in parts) else None
    if hasattr(value, "numel") and value.device.type == "cpu" and value.numel() == 1:
        return value.item()
    return value if type(value) in (bool, int, float, str) else None


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # of a tensor with several numbers, or a user's class
        return one is other


def _is_unwritten(tree: Tree) -> bool:
    return isinstance(tree, dict) and NOT_REBUILDABLE in tree


# ---- what the recorded parameters tell -------------------------------------------------------------------------------


def _is_told(made: Tree, recorded: Tree) -> bool:
    """Return whether a record names this very class, and all of its options that are not defaults."""
    if not isinstance(recorded, dict) or _called(recorded) != _called(made):
        return False
    given = recorded.get("arguments") or {}
    return all(name in given and given[name] == value for name, value in made["arguments"].items())


def _called(tree: Mapping[str, Any]) -> str:
    return str(tree.get("callable") or tree.get("object") or "").rpartition(":")[2]


def _at(tree: Tree, path: Iterable[str]) -> Tree:
    for step in path:
        below = tree if isinstance(tree, dict) else {}
        tree = (below.get("arguments") or below.get("dict") or {}).get(step)
    return tree
