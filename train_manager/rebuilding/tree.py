"""The form in which parameters are written: JSON in which every object has a tag that names its kind.

    null, true, 3, 0.5, "text", [..]          themselves
    {"tuple": [..]} {"set": [..]} {"frozenset": [..]}
    {"dict": {"key": ..}}                     a dict whose keys are all strings; another one is
    {"items": [[key, value], ..]}
    {"float": "nan"}                          also "inf" and "-inf"
    {"path": ".."} {"dtype": "float32"} {"device": "cuda:0"}
    {"tensor": [..], "dtype": ".."}           a few numbers
    {"enum": "module:Class", "member": "RED"}
    {"callable": "module:name"}               a registered class or function
    {"callable": "..", "positional": [..], "arguments": {..}}      a functools.partial of one
    {"object": "module:Class", "arguments": {..}}
    {"same_as": ["model", "head"]}            the object at that place, once more
    {"not_rebuildable": "a lambda"}           a value that cannot be written, and the reason

The reader is written by hand, with the standard library: a decoder such as msgspec's checks types, but here names must
be registered and places may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from train_manager.telling.errors import CheckpointError

Tree = Any
"""A tree that has passed ``check``."""

Step = str | int
"""One step down: the name of an argument, a key or an index."""

NOT_REBUILDABLE: Final = "not_rebuildable"
MAX_LEVELS: Final = 25  # of objects, lists and dicts inside each other
MAX_DEPTH: Final = 3 * MAX_LEVELS  # steps of a path, of which a level has at most three: "items", index, index
MAX_VALUES: Final = 100_000  # in one tree
MAX_TEXT: Final = 100_000  # characters of one text
MAX_BITS: Final = 4096  # of a whole number


# The tags whose value holds further trees.
_HOLDERS: Final = ("arguments", "dict", "positional", "tuple", "set", "frozenset", "items")


@final
@dataclass(frozen=True)
class Given:
    """A value of the user in place of a recorded one; it is in a tree in memory, and never written."""

    value: Any


def check(tree: Tree) -> None:
    """Refuse a tree that this library cannot have written: an unknown tag, a wrong type, too deep or too large.

    Raises:
        CheckpointError: the tree is refused; the error names the place.
    """
    left = [MAX_VALUES]  # in a list, so that all calls of the recursion count down the same number
    _check(tree, (), left)


def text_of(path: tuple[Step, ...]) -> str:
    """Return ``model.head.width``; nothing for the top."""
    return ".".join(map(str, path))


def parts_of(tree: Tree) -> dict[Step, Tree]:
    """Return the trees one step below, by their steps."""
    below: dict[Step, Tree] = {}
    for part in _holders(tree).values():
        # Names and numbers do not clash: of all tags only a partial has both.
        below.update(part if isinstance(part, dict) else enumerate(part))
    return below


def with_part(tree: Tree, step: Step, part: Tree) -> Tree:
    """Return a copy of a tree with another part at a step."""
    if isinstance(tree, list):
        return [part if index == step else old for index, old in enumerate(tree)]
    if "callable" in tree:
        # A bare function gets its first argument, so it becomes a partial.
        tree = {"positional": [], "arguments": {}, **tree}
    # A name belongs to the dict of a partial, a number to its list.
    kind = dict if isinstance(step, str) else list
    tag, below = next((tag, below) for tag, below in _holders(tree).items() if isinstance(below, kind))
    return {**tree, tag: {**below, step: part} if isinstance(below, dict) else with_part(below, step, part)}


def _holders(tree: Tree) -> dict[str, Any]:
    """Return the lists and dicts of parts that a tree has, by their tags."""
    if isinstance(tree, list):
        return {"": tree}
    return {tag: tree[tag] for tag in _HOLDERS if tag in tree} if isinstance(tree, dict) else {}


def not_rebuildable(tree: Tree, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Yield the path of each value that cannot be rebuilt, and the reason."""
    if isinstance(tree, dict) and NOT_REBUILDABLE in tree:
        yield path, tree[NOT_REBUILDABLE]
    for step, part in parts_of(tree).items():
        yield from not_rebuildable(part, (*path, step))


def _check(tree: Tree, path: tuple[Step, ...], left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0 or len(path) > MAX_DEPTH:
        if left[0] < 0:
            raise _foreign((), f"is more than {MAX_VALUES} values")
        raise _foreign(path[:8], f"is deeper than {MAX_DEPTH} steps")
    if isinstance(tree, list):
        for index, part in enumerate(tree):
            _check(part, (*path, index), left)
    elif isinstance(tree, dict):
        # The set of keys decides the form: an object with a missing or an additional key is refused.
        kind = _KINDS.get(frozenset(tree) if all(isinstance(key, str) for key in tree) else frozenset())
        if kind is None:
            tags = ", ".join(repr(key)[:20] for key in list(tree)[:3])
            raise _foreign(path, f"has the unknown tag {tags or '(none)'}")
        for tag, allowed in kind.items():
            allowed(tree[tag], (*path, tag), left)
    elif isinstance(tree, str):
        _text(tree, path, left)
    elif not (tree is None or type(tree) in (bool, int, float)):
        raise _foreign(path, f"is a {type(tree).__name__}")


def _text(value: Any, path: tuple[Step, ...], left: list[int]) -> None:
    if type(value) is not str or len(value) > MAX_TEXT:
        raise _foreign(path, "must be a text, and no long one")


def _list(value: Any, path: tuple[Step, ...], left: list[int]) -> None:
    if type(value) is not list:
        raise _foreign(path, "must be a list")
    _check(value, path, left)


def _named(value: Any, path: tuple[Step, ...], left: list[int]) -> None:
    if type(value) is not dict or not all(type(key) is str and len(key) <= MAX_TEXT for key in value):
        raise _foreign(path, "must be a dict with texts as keys")
    for name, part in value.items():
        # The path in an error has the name in place of the tag "arguments", as the user writes it.
        _check(part, (*path[:-1], name), left)


def _pairs(value: Any, path: tuple[Step, ...], left: list[int]) -> None:
    _list(value, path, left)
    if not all(type(pair) is list and len(pair) == 2 for pair in value):
        raise _foreign(path, "must be a list of pairs")


def _steps(value: Any, path: tuple[Step, ...], left: list[int]) -> None:
    _list(value, path, left)
    if not all(type(step) in (str, int) for step in value):
        raise _foreign(path, "must be a list of names and indices")


def _foreign(path: tuple[Step, ...], what: str) -> CheckpointError:
    place = text_of(path) or "the top"
    cure = "nothing was made of it; take another checkpoint, or build the objects yourself"
    return CheckpointError(f"these are not recorded parameters: {place:.100} {what}", name=place, cure=cure)


_Check = Callable[[Any, tuple[Step, ...], list[int]], None]

# The forms of an object: each tag with the check of its value.
_FORMS: Final[tuple[dict[str, _Check], ...]] = (
    {"tuple": _list},
    {"set": _list},
    {"frozenset": _list},
    {"dict": _named},
    {"items": _pairs},
    {"float": _text},
    {"path": _text},
    {"dtype": _text},
    {"device": _text},
    {"tensor": _check, "dtype": _text},
    {"enum": _text, "member": _text},
    {"callable": _text},
    {"callable": _text, "positional": _list, "arguments": _named},
    {"object": _text, "arguments": _named},
    {"same_as": _steps},
    {NOT_REBUILDABLE: _text},
)
_KINDS: Final = {frozenset(form): form for form in _FORMS}
