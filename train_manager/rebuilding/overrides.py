"""Values that replace recorded ones: ``{"model.threshold": 0.7}``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from train_manager.rebuilding.record_tree import (
    CALLS,
    NOT_REBUILDABLE,
    Given,
    RecordPath,
    Tree,
    parts_of,
    path_of,
    with_parts,
)
from train_manager.rebuilding.registry import find
from train_manager.rebuilding.signatures import REST, signature_of
from train_manager.telling.errors import CheckpointError, did_you_mean, near


def with_overrides(tree: Tree, overrides: Mapping[str, Any]) -> Tree:
    """Return a tree in which the values at these places are the given ones.

    Args:
        tree: a tree that has passed ``check``.
        overrides: values by dotted paths, such as ``model.head.width``, ``optimizer.lr`` and ``extensions.ema.decay``.

    Raises:
        CheckpointError: there is no such place.
    """
    # The shortest path first: an override of `model` is set before one of `model.width`, which is then refused.
    for path in sorted(overrides, key=lambda path: path.count(".")):
        tree = _overridden(tree, path.split("."), overrides[path], ())
    return tree


def _overridden(tree: Tree, steps: list[str], value: Any, at: RecordPath) -> Tree:
    if not steps:
        return Given(value)
    path = path_of((*at, *steps))
    _refuse_inside(tree, path, at, steps)
    parts = parts_of(tree)
    # The key of a dict may have dots, so the longest name that fits counts.
    for count in range(len(steps), 0, -1):
        name = ".".join(steps[:count])
        # Items of a list are numbered.
        step = int(name) if isinstance(next(iter(parts), None), int) and name.isdecimal() else name
        if step in parts or (step in _more_arguments(tree) and count == len(steps)):
            return with_parts(tree, {**parts, step: _overridden(parts.get(step), steps[count:], value, (*at, step))})
    raise _unknown(path, steps[0], at, [*map(str, parts), *_more_arguments(tree)], rest=steps[1:])


def _refuse_inside(tree: Tree, path: str, at: RecordPath, steps: list[str]) -> None:
    """Refuse a path into a value without parts: a given one, one that is not rebuildable, or a `$same`."""
    place = path_of(at)
    if isinstance(tree, Given):
        what, cure = f"{place} is given itself", f"set it in what you give for {place}"
    elif isinstance(tree, dict) and NOT_REBUILDABLE in tree:
        what = f"{place} was {tree[NOT_REBUILDABLE]}"
        cure = f'give all of it: overrides={{"{place}": ...}}'
    elif isinstance(tree, dict) and "$same" in tree:
        first = path_of(tuple(tree["$same"]))
        what, cure = f"{place} is the same object as {first}", f'write "{".".join([first, *steps])}"'
    else:
        return
    raise CheckpointError(f"{path!r} cannot be overridden: {what}", name=path, cure=cure)


def _more_arguments(tree: Tree) -> Collection[str]:
    """Return the arguments of a class or a function that its record lacks; an override may add them."""
    name = next((tree[mark] for mark in CALLS if mark in tree), None) if isinstance(tree, dict) else None
    signature = None if name is None else signature_of(find(name))
    named = [] if signature is None else [p.name for p in signature.parameters.values() if p.kind not in REST]
    return [name for name in named if name not in tree.get("arguments", {})]


def _unknown(path: str, step: str, at: RecordPath, known: list[str], rest: list[str]) -> CheckpointError:
    nearest = tuple(path_of((*at, name, *rest)) for name in near(step, known))
    place = path_of(at) or "it"
    has = f"{place} has {', '.join(known[:20])}" if known else f"{place} has no parts"
    return CheckpointError(
        f"there is no {path!r} to override", name=path, nearest=nearest, cure=did_you_mean(nearest) or has
    )
