"""Paths and addresses in the records of this library's extensions: of another machine or a stranger, so left out."""

from __future__ import annotations

from typing import Any, Final

from train_manager.rebuilding.record_tree import RecordPath, Tree, parts_of, path_of, with_parts

# A file from a stranger could let an extension write anywhere, or send metrics to any address.
PLACES: Final = {
    "train_manager.extensions:Checkpoints": ("at",),
    "train_manager.extensions:CodeRecord": ("folder", "others"),
    "train_manager.extensions:MLflow": ("uri",),
    "train_manager.extensions:TensorBoard": ("folder",),
}
# Values of these arguments that are not a path; the number of a step is not one either.
_NO_PLACES: Final[tuple[Any, ...]] = (None, "last", "best", [], {"$tuple": []})


def without_places(tree: Tree, left_out: list[str], at: RecordPath = ()) -> Tree:
    """Return a tree without the places that it gives to extensions.

    >>> left_out: list[str] = []
    >>> record = {"$object": "train_manager.extensions:TensorBoard", "arguments": {"folder": "/etc"}}
    >>> without_places({"tensor_board": record}, left_out)
    {'tensor_board': {'$object': 'train_manager.extensions:TensorBoard', 'arguments': {}}}
    >>> left_out
    ['tensor_board.folder']

    Args:
        tree: a tree that has passed ``check``.
        left_out: a list to which the dotted paths of the removed arguments are added.
        at: the path of the tree.
    """
    parts = parts_of(tree)
    for name in PLACES.get(tree.get("$object", ""), ()) if isinstance(tree, dict) else ():
        if parts.get(name) not in _NO_PLACES and type(parts[name]) is not int:
            del parts[name]
            left_out.append(path_of((*at, name)))
    return with_parts(tree, {step: without_places(part, left_out, (*at, step)) for step, part in parts.items()})
