"""The optimizers and schedulers that a training has made, beside its recorded parameters.

Of a lambda or a function only the name can be recorded. A comparison of runs has what it made: a rate of 0.1 in one
run, and of 0.3 in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from train_manager.checkpoints.made import made_tree
from train_manager.rebuilding.record_tree import NOT_REBUILDABLE, Tree, check, parts_of
from train_manager.rebuilding.recorded_rows import ArgumentRows, parameter_rows
from train_manager.runs.record.trained_parts import part_rows

Made = dict[str, Tree]
"""What was made, by the dotted path of the parameter that has made it."""


def made_objects(train_manager: Any) -> Made:
    """Return the optimizers and schedulers that a manager and its extensions have at present."""
    optimizers, schedulers = train_manager.optimizers, train_manager.lr_schedule
    is_sole = not isinstance(train_manager.optimizer, Mapping)
    found = {"optimizer" if is_sole else f"optimizer.{name}": one for name, one in optimizers.items()}
    named = schedulers if isinstance(schedulers, Mapping) else {"": schedulers}
    found |= {f"lr_schedule.{name}".rstrip("."): one for name, one in named.items() if one is not None}
    for name, extension in train_manager.extensions.items():
        scheduler = getattr(extension, "scheduler", None)
        if hasattr(scheduler, "step"):
            found[f"extensions.{name}.make"] = scheduler
    return {path: made_tree(one, is_brief=True) for path, one in found.items()}


def unrecorded_objects(made: Made, parameters: Tree) -> Made:
    """Return the objects whose class and options the recorded parameters do not name already."""
    return {path: tree for path, tree in made.items() if not _is_recorded(tree, _at(parameters, path.split(".")))}


def made_rows(made: Made, recorded: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield each object with the name of its row in a table of parameters."""
    # The row of a lambda is replaced; beside a row with a value of its own, " made" is added to the name.
    for path, tree in made.items():
        given = _at(recorded, path.split("."))
        is_free = given is None or NOT_REBUILDABLE in given
        yield (path if is_free else f"{path} made"), tree


def parameter_rows_of(entry: Mapping[str, Any]) -> ArgumentRows:
    """Return what the objects of a run were made with, by their dotted paths."""
    recorded = entry.get("parameters")
    if not recorded:
        return {}
    made = entry.get("made") or {}
    for tree in (recorded, made):
        check(tree)  # nothing that was not written by this library, and nothing too deep
    rows = parameter_rows(recorded)
    of_made = parameter_rows(dict(made_rows(made, recorded))) if made else {}
    return rows | of_made | part_rows(entry.get("trains") or {})


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
