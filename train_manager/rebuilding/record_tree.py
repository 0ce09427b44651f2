"""The form in which recorded arguments are written: JSON with the marks of ``files/json_values``, and these:

{"$object": "module:Class", "arguments": {..}}
{"$callable": "module:name"}              a registered class or function; with "arguments" a functools.partial of it
{"$enum": ["module:Class", "RED"]}
{"$set": [..]} {"$frozenset": [..]}
{"$path": ".."} {"$dtype": "torch.float32"} {"$device": "cuda:0"}
{"$numbers": [[0.5, 2.0], "torch.float32"]}       a tensor of a few numbers
{"$same": ["model", "head"]}              the object at that place, once more
{"$not_rebuildable": "a lambda"}          a value that cannot be written, and the reason; with "described" what it is
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from train_manager.files.json_values import DEEPEST, key_of, mark_of
from train_manager.telling.errors import CheckpointError

Tree = Any
"""A tree in this form."""

Step = str | int
"""One step down: the name of an argument, a key or an index."""

RecordPath = tuple[Step, ...]

NOT_REBUILDABLE: Final = "$not_rebuildable"
DESCRIBED: Final = "described"
CALLS: Final = ("$object", "$callable")  # marks beside which there are arguments
_LISTS: Final = ("$tuple", "$set", "$frozenset", "$dict", "$OrderedDict", "$Counter")  # marks of lists of further trees
_TEXTS: Final = ("$float", "$int", "$bytes", "$path", "$dtype", "$device")


@final
@dataclass(frozen=True)
class Given:
    """A value of the user in place of a recorded one; it is in a tree in memory, and never written."""

    value: Any


def check(tree: Tree) -> None:
    """Refuse a tree that this library cannot have written: an unknown mark, a wrong type behind one, or too deep.

    Raises:
        CheckpointError: the tree is refused; the error names the place.
    """
    try:
        for place, part in nodes(tree):
            if len(place) > DEEPEST:
                raise CheckpointError(f"{path_of(place[:8])} is nested more than {DEEPEST} deep")
            mark = mark_of(part, place)
            if mark is not None and not _is_form(mark, part):
                raise CheckpointError(f"{path_of(place) or 'the top'}: {mark!r:.60} is not a form with this content")
    except CheckpointError as error:
        cure = "nothing was made of it; take another checkpoint, or build the objects yourself"
        what = f"these are not recorded parameters: {error.what}"
        raise CheckpointError(what, name="parameters", cure=cure) from None


def _is_form(mark: str, tree: dict[str, Any]) -> bool:
    given = tree[mark]
    if mark in CALLS:
        has_arguments = type(tree.get("arguments", {} if mark == "$callable" else None)) is dict
        return type(given) is str and has_arguments and {*tree} <= {mark, "arguments"}
    if mark == NOT_REBUILDABLE:
        return type(given) is str and type(tree.get(DESCRIBED, "")) is str and {*tree} <= {mark, DESCRIBED}
    if len(tree) > 1:
        return False
    if mark == "$enum":
        return type(given) is list and [type(part) for part in given] == [str, str]
    if mark == "$same":
        return type(given) is list and all(type(step) in (str, int) for step in given)
    if mark == "$numbers":
        return type(given) is list and len(given) == 2 and type(given[1]) is str
    return type(given) is (list if mark in _LISTS else str) and mark in (*_LISTS, *_TEXTS)


def path_of(place: RecordPath) -> str:
    """Return ``model.head.width``; nothing for the top."""
    return ".".join(map(str, place))


def parts_of(tree: Tree) -> dict[Step, Tree]:
    """Return the trees one step below, by their steps.

    >>> parts_of({"$object": "nets:Net", "arguments": {"width": 8}}), parts_of({"$tuple": [3, 4]})
    ({'width': 8}, {0: 3, 1: 4})
    """
    mark = mark_of(tree)
    below = tree
    if mark is not None:
        below = tree.get("arguments") if mark in CALLS else tree[mark] if mark in _LISTS else None
    if isinstance(below, dict):
        return {key_of(key): part for key, part in below.items()}
    return dict(enumerate(below)) if isinstance(below, list) else {}


def with_parts(tree: Tree, parts: dict[Step, Tree]) -> Tree:
    """Return a copy of a tree with other parts one step below."""
    mark = mark_of(tree)
    if isinstance(tree, list):
        return list(parts.values())
    if mark in CALLS:
        # A bare function has no arguments; its first one makes a partial of it.
        return {**tree, "arguments": parts} if parts or "arguments" in tree else tree
    if mark in _LISTS:
        return {mark: list(parts.values())}
    if isinstance(tree, dict) and mark is None:
        return {f"${key}" if str(key).startswith("$") else key: part for key, part in parts.items()}
    return tree


def nodes(tree: Tree, place: RecordPath = ()) -> Iterator[tuple[RecordPath, Tree]]:
    """Yield each value of a tree with its place, from the top down."""
    # A given value is not looked into, even if it is a dict or a list.
    if isinstance(tree, Given):
        return
    yield place, tree
    for step, part in parts_of(tree).items():
        yield from nodes(part, (*place, step))


def not_rebuildable(tree: Tree) -> Iterator[tuple[RecordPath, str]]:
    """Yield the place of each value that cannot be rebuilt, and the reason."""
    for place, part in nodes(tree):
        if isinstance(part, dict) and NOT_REBUILDABLE in part:
            yield place, part[NOT_REBUILDABLE]
