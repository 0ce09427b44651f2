"""Objects rebuilt from their records, by names that the registry knows and no other way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final, final

from train_manager.rebuilding.overrides import with_overrides
from train_manager.rebuilding.recorded import signature_of
from train_manager.rebuilding.registry import find
from train_manager.rebuilding.torch_values import device_of, dtype_of, tensor_of
from train_manager.rebuilding.tree import (
    MAX_LEVELS,
    Given,
    Step,
    Tree,
    check,
    not_rebuildable,
    parts_of,
    text_of,
)
from train_manager.telling.errors import CheckpointError, did_you_mean, near

Place = tuple[Step, ...]


def rebuild(parameters: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Any:
    """Make an object again from its ``parameters_of``, as new: without the weights that it had learnt.

    >>> from train_manager import recorded
    >>> from train_manager.rebuilding.recorded import parameters_of
    >>> Net = recorded(type("Net", (), {"__init__": lambda self, width, classes=10: None, "__module__": "nets"}))
    >>> parameters_of(rebuild(parameters_of(Net(8)), {"classes": 3}))
    {'object': 'nets:Net', 'arguments': {'width': 8, 'classes': 3}}

    Args:
        parameters: the result of ``parameters_of`` a recorded object.
        overrides: values by dotted paths, which replace recorded ones.

    Raises:
        CheckpointError: a class is not registered, its arguments have changed, or a value cannot be rebuilt.
    """
    check(parameters)
    tree = with_overrides(parameters, overrides or {})
    # After the overrides, which may have replaced the values that cannot be rebuilt.
    refuse_missing(not_rebuildable(tree))
    return Rebuilding(tree).made()


def refuse_missing(missing: Iterable[tuple[Place, str]], *, by_keyword: bool = False) -> None:
    """Raise one error for all values that cannot be rebuilt, with a cure for each; nothing if there are none.

    Args:
        missing: the places of the values, and the reasons.
        by_keyword: whether a value at the top of the tree can be passed as an argument by its name.

    Raises:
        CheckpointError: a value is missing.
    """
    lines = {text_of(place) or "it": f"{text_of(place) or 'it'} was {why}" for place, why in missing}
    if lines:
        *others, last = lines
        what = f"the checkpoint does not say how to make {', '.join(others)}{' and ' if others else ''}{last}"
        cures = [f"{line}: {_supplied(name, by_keyword)}" for name, line in lines.items()]
        raise CheckpointError(what, name=next(iter(lines)), cure="\n  ".join(cures))


def _supplied(name: str, by_keyword: bool) -> str:
    return f"pass {name}=..." if by_keyword and "." not in name else f'pass overrides={{"{name}": ...}}'


@final
class Rebuilding:
    """Makes the objects of one tree, each once: an object that two others shared is shared again.

    Args:
        tree: a tree that has passed ``check``.

    Raises:
        CheckpointError: a class is not registered, or its arguments have changed; before anything was made.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._objects: dict[Place, Any] = {}  # the objects made so far, for `same_as`
        _refuse_unfitting(tree, ())

    def made(self, *place: Step) -> Any:
        """Return the value at a place of the tree; by default the value of the whole tree."""
        return self._made(_at(self._tree, place), place, 0)

    def _made(self, tree: Tree, place: Place, level: int) -> Any:
        if isinstance(tree, Given):
            return tree.value
        # `check` limits the depth of the tree, but a `same_as` inside its own object would recurse for ever.
        if level > MAX_LEVELS:
            raise CheckpointError(f"{text_of(place[:8]) or 'it'} refers to itself", name=text_of(place[:8]))
        if isinstance(tree, list):
            return [self._made(part, (*place, index), level + 1) for index, part in enumerate(tree)]
        if not isinstance(tree, dict):
            return tree
        # `check` has accepted the tags, so one has a maker. A tensor has a dtype too, but its first tag is "tensor".
        make = _MAKERS[next(tag for tag in tree if tag in _MAKERS)]
        return make(self, tree, place, level + 1)

    def _parts(self, tree: Tree, place: Place, level: int) -> dict[Step, Any]:
        return {step: self._made(part, (*place, step), level) for step, part in parts_of(tree).items()}

    def _object(self, tree: Tree, place: Place, level: int) -> Any:
        if place not in self._objects:
            kind = find(tree["object"], text_of(place))
            args, kwargs = _call(kind, self._parts(tree, place, level))
            try:
                self._objects[place] = kind(*args, **kwargs)
            except Exception as error:
                # The error comes from the user's class, so it keeps its type and gets the place as a note.
                error.add_note(f"while {text_of(place) or 'it'} was rebuilt: {kind.__name__}({', '.join(kwargs)})")
                raise
        return self._objects[place]

    def _callable(self, tree: Tree, place: Place, level: int) -> Any:
        function = find(tree["callable"], text_of(place))
        if "arguments" not in tree:
            return function
        parts = self._parts(tree, place, level)
        # `parts_of` numbers the positional arguments, and names the others.
        args = [parts.pop(index) for index in range(len(tree["positional"]))]
        return partial(function, *args, **{str(name): value for name, value in parts.items()})

    def _same(self, tree: Tree, place: Place, level: int) -> Any:
        # `_made` finds the object in `_objects` if it was made already, and makes it otherwise.
        first = tuple(tree["same_as"])
        return self._made(_at(self._tree, first), first, level)

    def _unordered(self, tree: Tree, place: Place, level: int) -> Any:
        tag, kind = next((tag, kind) for tag, kind in _UNORDERED.items() if tag in tree)
        try:
            # A set of lists, or a dict with lists as keys, is well formed in the file but cannot exist.
            return kind(self._made(tree[tag], place, level))
        except TypeError as error:
            raise CheckpointError(f"{text_of(place)} has keys that no {kind.__name__} can have") from error

    def _enum(self, tree: Tree, place: Place, level: int) -> Any:
        kind = find(tree["enum"], text_of(place))
        # The registered name may belong to a class that is not an enum any more.
        members = kind.__members__ if isinstance(kind, type) and issubclass(kind, Enum) else {}
        if tree["member"] not in members:
            cure = did_you_mean(near(tree["member"], members)) or f"there are {', '.join(members) or 'none'}"
            what = f"{text_of(place)} is {tree['member']!r:.60}, which {tree['enum']} does not have"
            raise CheckpointError(what, name=text_of(place), cure=cure)
        return members[tree["member"]]

    def _float(self, tree: Tree, place: Place, level: int) -> float:
        if tree["float"] not in ("nan", "inf", "-inf"):
            raise CheckpointError(f"{text_of(place)} is not a number: {tree['float']!r:.40}", name=text_of(place))
        return float(tree["float"])

    def _tensor(self, tree: Tree, place: Place, level: int) -> Any:
        return tensor_of(self._made(tree["tensor"], place, level), tree["dtype"], text_of(place))


_UNORDERED: Final[Mapping[str, Callable[[Any], Any]]] = {"set": set, "frozenset": frozenset, "items": dict}

_Maker = Callable[[Rebuilding, Tree, Place, int], Any]

_MAKERS: Final[Mapping[str, _Maker]] = {
    "object": Rebuilding._object,
    "callable": Rebuilding._callable,
    "same_as": Rebuilding._same,
    "tuple": lambda self, tree, place, level: tuple(self._made(tree["tuple"], place, level)),
    **dict.fromkeys(_UNORDERED, Rebuilding._unordered),
    "dict": Rebuilding._parts,
    "enum": Rebuilding._enum,
    "float": Rebuilding._float,
    "path": lambda self, tree, place, level: Path(tree["path"]),
    "tensor": Rebuilding._tensor,
    "dtype": lambda self, tree, place, level: dtype_of(tree["dtype"], text_of(place)),
    "device": lambda self, tree, place, level: device_of(tree["device"], text_of(place)),
}


def _at(tree: Tree, place: Place) -> Tree:
    """Return the tree at a place."""
    for step in place:
        parts = parts_of(tree)
        # An override may have replaced the value that another place refers to.
        if step not in parts:
            where = text_of(place)
            what = f"{where} is referred to, but is given, or not there"
            raise CheckpointError(what, name=where, cure="give what refers to it too")
        tree = parts[step]
    return tree


# Tags whose value is a name for the registry.
_NAMING: Final = ("object", "callable", "enum")


def _refuse_unfitting(tree: Tree, place: Place) -> None:
    """Refuse names that are not registered, and arguments that have changed, before anything is made."""
    name = next((tree[tag] for tag in _NAMING if tag in tree), None) if isinstance(tree, dict) else None
    if name is not None:
        kind = find(name, text_of(place))
        # A registered function must not run because a file calls it an object.
        if "object" in tree and not isinstance(kind, type):
            raise CheckpointError(
                f"{text_of(place)} is made by {tree['object']}, which is not a class", name=text_of(place)
            )
        signature = signature_of(kind)
        # The call would raise a TypeError too, but only after other objects are made, and without a cure.
        if signature is not None and "enum" not in tree:
            refuse_changed(signature, kind, tree.get("arguments", {}), place, is_call="object" in tree)
    for step, part in parts_of(tree).items():
        _refuse_unfitting(part, (*place, step))


def refuse_changed(
    signature: Signature, kind: Any, arguments: Mapping[str, Any], place: Place, *, is_call: bool = True
) -> None:
    """Refuse arguments that a class or a function no longer has, or one that is new and required."""
    called, where = kind.__name__, text_of(place) or "it"
    parameters = signature.parameters.values()
    # With **kwargs every name fits.
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    gone = [] if takes_any else [name for name in arguments if name not in signature.parameters]
    if gone:
        nearest = near(gone[0], [name for name in signature.parameters if name not in arguments])
        what = f"{where} was recorded with the argument {gone[0]!r}, which {called} does not have any more"
        yourself = f'overrides={{"{where}": {called}(...)}}' if place else f"{called}(...)"
        cure = f"{did_you_mean(nearest)} Make it yourself: {yourself}".strip()
        raise CheckpointError(what, name=gone[0], asked_by=called, nearest=nearest, cure=cure)
    # A function is only passed on: its required arguments come when it is called.
    new = [p.name for p in parameters if _is_required(p) and p.name not in arguments] if is_call else []
    if new:
        what = f"{called} needs the argument {new[0]!r}, which was not recorded for {where}"
        cure = f'give it: overrides={{"{text_of((*place, new[0]))}": ...}}'
        raise CheckpointError(what, name=new[0], asked_by=called, cure=cure)


def _is_required(parameter: Parameter) -> bool:
    is_rest = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not is_rest


def _call(kind: Any, arguments: Mapping[Step, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as a call takes them: without names where the signature has none, or has ``*args``."""
    signature = signature_of(kind)
    named = {str(name): value for name, value in arguments.items()}
    # The record has the arguments of *args as one list under the name of the parameter. If there are any, every
    # argument before them must be given by position too.
    rest = next((p.name for p in _parameters(signature) if p.kind is Parameter.VAR_POSITIONAL and p.name in named), "")
    by_position = (Parameter.POSITIONAL_ONLY, *([Parameter.POSITIONAL_OR_KEYWORD] if rest else []))
    args = [named.pop(p.name) for p in _parameters(signature) if p.kind in by_position and p.name in named]
    return [*args, *named.pop(rest, ())], named


def _parameters(signature: Signature | None) -> Iterator[Parameter]:
    yield from () if signature is None else signature.parameters.values()
