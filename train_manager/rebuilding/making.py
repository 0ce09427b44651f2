"""Objects rebuilt from their records, by names that the registry knows and no other way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.json_values import Decoder, mark_of
from train_manager.rebuilding.overrides import with_overrides
from train_manager.rebuilding.record_tree import (
    Given,
    RecordPath,
    Step,
    Tree,
    check,
    nodes,
    not_rebuildable,
    parts_of,
    path_of,
)
from train_manager.rebuilding.registry import find
from train_manager.rebuilding.signatures import call_of, signature_of
from train_manager.rebuilding.torch_values import device_of, dtype_of, tensor_of
from train_manager.telling.argument_names import is_required
from train_manager.telling.errors import CheckpointError, did_you_mean, near


def rebuild(parameters: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Any:
    """Make an object again from its ``parameters_of``, as new: without the weights that it had learnt.

    >>> from train_manager import recorded
    >>> from train_manager.rebuilding.recorded import parameters_of
    >>> Net = recorded(type("Net", (), {"__init__": lambda self, width, classes=10: None, "__module__": "nets"}))
    >>> parameters_of(rebuild(parameters_of(Net(8)), {"classes": 3}))
    {'$object': 'nets:Net', 'arguments': {'width': 8, 'classes': 3}}

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


def refuse_missing(missing: Iterable[tuple[RecordPath, str]], *, by_keyword: bool = False) -> None:
    """Raise one error for all values that cannot be rebuilt, with a cure for each; nothing if there are none.

    Args:
        missing: the places of the values, and the reasons.
        by_keyword: whether a value at the top of the tree can be passed as an argument by its name.

    Raises:
        CheckpointError: a value is missing.
    """
    lines = {path_of(place) or "it": f"{path_of(place) or 'it'} was {why}" for place, why in missing}
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
        self._objects: dict[RecordPath, Any] = {}  # the objects made so far, for `$same`
        self._read = Decoder(self._value)
        _refuse_unfitting(tree)

    def made(self) -> Any:
        """Return the value of the tree."""
        try:
            return self._read(self._tree)
        except RecursionError as error:
            # A `$same` inside its own object, which is not made before its arguments are.
            what = "the recorded parameters refer to themselves"
            raise CheckpointError(what, name="parameters") from error

    def _value(self, tree: Tree, place: RecordPath, decoder: Decoder) -> Any:
        if isinstance(tree, Given):
            return tree.value
        make = _MAKERS.get(mark_of(tree, place) or "")
        return decoder.plain(tree, place) if make is None else make(self, tree, place)

    def _arguments(self, tree: Tree, place: RecordPath) -> dict[str, Any]:
        return {str(name): self._read(part, (*place, name)) for name, part in parts_of(tree).items()}

    def _object(self, tree: Tree, place: RecordPath) -> Any:
        if place not in self._objects:
            kind = find(tree["$object"], path_of(place))
            args, kwargs = call_of(kind, self._arguments(tree, place))
            try:
                self._objects[place] = kind(*args, **kwargs)
            except Exception as error:
                # The error comes from the user's class, so it keeps its type and gets the place as a note.
                error.add_note(f"while {path_of(place) or 'it'} was rebuilt: {kind.__name__}({', '.join(kwargs)})")
                raise
        return self._objects[place]

    def _callable(self, tree: Tree, place: RecordPath) -> Any:
        function = find(tree["$callable"], path_of(place))
        if "arguments" not in tree:
            return function
        args, kwargs = call_of(function, self._arguments(tree, place), is_partial=True)
        return partial(function, *args, **kwargs)

    def _same(self, tree: Tree, place: RecordPath) -> Any:
        # `_object` finds the object if it was made already, and makes it otherwise.
        first = tuple(tree["$same"])
        return self._read(_at(self._tree, first), first)

    def _set(self, tree: Tree, place: RecordPath) -> Any:
        kind = set if "$set" in tree else frozenset
        items = self._read.items(next(iter(tree.values())), place)
        try:
            return kind(items)
        except TypeError as error:  # a set of lists is well formed in the file, but cannot exist
            raise CheckpointError(f"{path_of(place)} has items that no {kind.__name__} can have") from error

    def _enum(self, tree: Tree, place: RecordPath) -> Any:
        name, member = tree["$enum"]
        kind = find(name, path_of(place))
        # The registered name may belong to a class that is not an enum any more.
        members = kind.__members__ if isinstance(kind, type) and issubclass(kind, Enum) else {}
        if member not in members:
            cure = did_you_mean(near(member, members)) or f"there are {', '.join(members) or 'none'}"
            what = f"{path_of(place)} is {member!r:.60}, which {name} does not have"
            raise CheckpointError(what, name=path_of(place), cure=cure)
        return members[member]

    def _numbers(self, tree: Tree, place: RecordPath) -> Any:
        numbers, dtype = tree["$numbers"]
        return tensor_of(self._read(numbers, place), dtype, path_of(place))


_MAKERS: Final[Mapping[str, Callable[[Rebuilding, Tree, RecordPath], Any]]] = {
    "$object": Rebuilding._object,
    "$callable": Rebuilding._callable,
    "$same": Rebuilding._same,
    "$set": Rebuilding._set,
    "$frozenset": Rebuilding._set,
    "$enum": Rebuilding._enum,
    "$path": lambda self, tree, place: Path(tree["$path"]),
    "$numbers": Rebuilding._numbers,
    "$dtype": lambda self, tree, place: dtype_of(tree["$dtype"], path_of(place)),
    "$device": lambda self, tree, place: device_of(tree["$device"], path_of(place)),
}


def _at(tree: Tree, place: RecordPath) -> Tree:
    """Return the tree at a place."""
    for step in place:
        parts: Mapping[Step, Tree] = {} if isinstance(tree, Given) else parts_of(tree)
        # An override may have replaced the value that another place refers to.
        if step not in parts:
            where = path_of(place)
            what = f"{where} is referred to, but is given, or not there"
            raise CheckpointError(what, name=where, cure="give what refers to it too")
        tree = parts[step]
    return tree


def _refuse_unfitting(tree: Tree) -> None:
    """Refuse names that are not registered, and arguments that have changed, before anything is made."""
    for place, part in nodes(tree):
        match part:
            case {"$enum": [name, _]}:
                find(name, path_of(place))
            case {"$object": name} | {"$callable": name}:
                _refuse_call(find(name, path_of(place)), part, place)


def _refuse_call(kind: Any, tree: Tree, place: RecordPath) -> None:
    # A registered function must not run because a file calls it an object.
    if "$object" in tree and not isinstance(kind, type):
        what = f"{path_of(place)} is made by {tree['$object']}, which is not a class"
        raise CheckpointError(what, name=path_of(place))
    signature = signature_of(kind)
    # The call would raise a TypeError too, but only after other objects are made, and without a cure.
    if signature is not None:
        refuse_changed(signature, kind, tree.get("arguments", {}), place, is_call="$object" in tree)


def refuse_changed(
    signature: Signature, kind: Any, arguments: Mapping[str, Any], place: RecordPath, *, is_call: bool = True
) -> None:
    """Refuse arguments that a class or a function no longer has, or one that is new and required."""
    called, where = kind.__name__, path_of(place) or "it"
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
    new = [p.name for p in parameters if is_required(p) and p.name not in arguments] if is_call else []
    if new:
        what = f"{called} needs the argument {new[0]!r}, which was not recorded for {where}"
        cure = f'give it: overrides={{"{path_of((*place, new[0]))}": ...}}'
        raise CheckpointError(what, name=new[0], asked_by=called, cure=cure)
