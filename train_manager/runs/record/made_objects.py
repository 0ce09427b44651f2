"""The optimizers and schedulers of a training as they were made: their classes, and options that are plain values.

A user may give a lambda or a function to make one, of which only the name can be recorded. Here the objects that it
has made are looked at, so that a comparison of runs shows that one had a rate of 0.1 and the other a rate of 0.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from train_manager.rebuilding.record_tree import NOT_REBUILDABLE, Tree, check, parts_of
from train_manager.rebuilding.recorded_rows import Rows, parameter_rows
from train_manager.rebuilding.signatures import signature_of
from train_manager.rebuilding.value_trees import trees_of

DYNAMIC: Final = ("last_epoch", "fused")  # arguments left out: the first changes in each epoch, the second by device
MOST_LEVELS: Final = 5  # levels of schedulers that consist of schedulers

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


def unrecorded_objects(made: Made, parameters: Tree) -> Made:
    """Return the objects whose class and options the recorded parameters do not name already."""
    return {path: tree for path, tree in made.items() if not _is_recorded(tree, _at(parameters, path.split(".")))}


def made_rows(made: Made, rows: Mapping[str, str]) -> Iterator[tuple[str, Tree]]:
    """Yield each object with the name of its row in a table of parameters."""
    # A row such as "<function make>" is replaced; beside a row with a value of its own, " made" is added to the name.
    for path, tree in made.items():
        is_free = rows.get(path, "<").startswith("<")
        yield (path if is_free else f"{path} made"), tree


# ---- one object ------------------------------------------------------------------------------------------------------


def parameter_rows_of(entry: Mapping[str, Any]) -> Rows:
    """Return what the objects of a run were made with, by their dotted paths."""
    recorded = entry.get("parameters")
    if not recorded:
        return {}
    made = entry.get("made") or {}
    for tree in (recorded, made):
        check(tree)  # nothing that was not written by this library, and nothing too deep
    rows = parameter_rows(recorded)
    return rows | (parameter_rows(dict(made_rows(made, rows))) if made else {})


def _of_optimizer(optimizer: Any) -> Tree:
    """Return ``SGD(lr=0.1, momentum=0.9)`` as a tree; an option of several groups is a tuple if they differ."""
    groups = optimizer.param_groups
    names = getattr(optimizer, "defaults", None) or {name for group in groups for name in group if name != "params"}
    values = {name: _common([_first(group, name) for group in groups]) for name in names}
    return _tree(type(optimizer), values)


def _first(group: Mapping[str, Any], name: str) -> Any:
    """Return an option of a group, as it was before a scheduler changed it."""
    return group.get(f"initial_{name}", group.get(name))


def _of_scheduler(scheduler: Any, level: int = 0) -> Tree:
    """Return ``StepLR(step_size=10)`` as a tree, with the trees of the schedulers that it consists of."""
    signature = signature_of(type(scheduler))
    tree = _tree(
        type(scheduler), {name: _argument_of(scheduler, name) for name in (signature.parameters if signature else ())}
    )
    parts = getattr(scheduler, "_schedulers", None)
    if isinstance(parts, list | tuple) and level < MOST_LEVELS:
        tree["arguments"]["schedulers"] = [_of_scheduler(part, level + 1) for part in parts]
    return tree


def _argument_of(scheduler: Any, name: str) -> Any:
    """Return the value of a scheduler's argument: an attribute, a list for the groups, or an option of the groups."""
    attributes = vars(scheduler)
    # LambdaLR keeps its `lr_lambda` as the list `lr_lambdas`, one for each group.
    for place in (name, f"_{name}", f"{name}s"):
        if place in attributes:
            value = attributes[place]
            return _common(value) if place == f"{name}s" and isinstance(value, list) and value else value
    groups = getattr(attributes.get("optimizer"), "param_groups", None) or [{}]
    return _common([group.get(name) for group in groups])


def _common(values: list[Any]) -> Any:
    return values[0] if all(_is_equal(value, values[0]) for value in values) else tuple(values)


def _tree(kind: type, values: Mapping[str, Any]) -> Tree:
    """Return a class with the arguments that are plain values and differ from their defaults."""
    signature = signature_of(kind)
    defaults = {p.name: p.default for p in signature.parameters.values()} if signature else dict.fromkeys(values)
    plain = {name: _plain(values[name]) for name in values if name in defaults and name not in DYNAMIC}
    given = {name: value for name, value in plain.items() if value is not None and not _is_equal(value, defaults[name])}
    trees = {name: tree for name, tree in trees_of(given).items() if not _is_unwritten(tree)}
    return {"$object": f"{kind.__module__}:{kind.__qualname__}", "arguments": trees}


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
    except Exception:  # the comparison of a tensor with several numbers has no truth value; a user's may raise
        return one is other


def _is_unwritten(tree: Tree) -> bool:
    return isinstance(tree, dict) and NOT_REBUILDABLE in tree


# ---- beside the recorded parameters ----------------------------------------------------------------------------------


def _is_recorded(made: Tree, recorded: Tree) -> bool:
    """Return whether a record names this very class, and all of its options that are not defaults."""
    if not isinstance(recorded, dict) or _class_name(recorded) != _class_name(made):
        return False
    given = recorded.get("arguments") or {}
    return all(name in given and given[name] == value for name, value in made["arguments"].items())


def _class_name(tree: Mapping[str, Any]) -> str:
    # Only the name after the module: a class may be imported from several modules.
    return str(tree.get("$callable") or tree.get("$object") or "").rpartition(":")[2]


def _at(tree: Tree, path: Iterable[str]) -> Tree:
    for step in path:
        tree = parts_of(tree).get(step)
    return tree
