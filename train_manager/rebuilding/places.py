"""Paths and addresses in the records of this library's extensions: of another machine or a stranger, so left out."""

from __future__ import annotations

from typing import Any, Final

from train_manager.rebuilding.tree import Tree

# A file from a stranger could let an extension write anywhere, or send metrics to any address.
PLACES: Final = {
    "train_manager.extensions:Checkpoints": ("at",),
    "train_manager.extensions:CodeRecord": ("folder", "others"),
    "train_manager.extensions:MLflow": ("uri",),
    "train_manager.extensions:TensorBoard": ("folder",),
}
# Values of these arguments that are not a path; the number of a step is not one either.
_NO_PLACES: Final[tuple[Any, ...]] = (None, "last", "best", [], {"tuple": []})


def without_places(tree: Tree, left_out: list[str], at: str = "") -> Tree:
    """Return a tree without the places that it gives to extensions.

    >>> left_out: list[str] = []
    >>> record = {"object": "train_manager.extensions:TensorBoard", "arguments": {"folder": "/etc"}}
    >>> without_places({"dict": {"tensor_board": record}}, left_out)
    {'dict': {'tensor_board': {'object': 'train_manager.extensions:TensorBoard', 'arguments': {}}}}
    >>> left_out
    ['tensor_board.folder']

    Args:
        tree: a tree that has passed ``check``.
        left_out: a list to which the dotted paths of the removed arguments are added.
        at: the dotted path of the tree.
    """
    if isinstance(tree, list):
        return [without_places(part, left_out, _below(at, index)) for index, part in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    found = {tag: _without(tag, part, left_out, at) for tag, part in tree.items()}
    for name in PLACES.get(str(tree.get("object")), ()):
        given = tree["arguments"].get(name)
        if given not in _NO_PLACES and type(given) is not int:
            del found["arguments"][name]
            left_out.append(_below(at, name))
    return found


def _without(tag: str, part: Any, left_out: list[str], at: str) -> Any:
    # Under these tags the keys are names; elsewhere only lists hold further trees.
    if tag in ("arguments", "dict"):
        return {name: without_places(below, left_out, _below(at, name)) for name, below in part.items()}
    return without_places(part, left_out, at) if isinstance(part, list) else part


def _below(at: str, step: object) -> str:
    return f"{at}.{step}" if at else str(step)
