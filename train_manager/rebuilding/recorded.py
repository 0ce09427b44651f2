"""The decorator that registers a class and records the arguments of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar

from train_manager.rebuilding.registry import register
from train_manager.rebuilding.tree import MAX_LEVELS, MAX_VALUES, NOT_REBUILDABLE, Step, Tree
from train_manager.rebuilding.value_trees import RECORD, trees_of
from train_manager.telling.errors import InputError

T = TypeVar("T")

_RECORDING = "_recording_init"
"""The attribute of a class that holds its recording ``__init__``, so that a second ``@recorded`` changes nothing."""


def recorded(thing: T) -> T:
    """Record the arguments of the objects of a class, so that a checkpoint can make the objects again.

    >>> from torch import nn
    >>> from train_manager import recorded
    >>> @recorded
    ... class Net(nn.Module):
    ...     def __init__(self, width, threshold=0.5):
    ...         super().__init__()
    ...         self.layer, self.threshold = nn.Linear(2, width), threshold

    ``TrainManager.from_checkpoint`` makes a ``Net`` with the same arguments, defaults included, in any program that has
    imported the module above. A file can name no other class.

    The arguments are written down as values as the object is made; other recorded objects among them are recorded with
    theirs. A value that cannot be written (a large tensor, a lambda, an object of a class that is not recorded, a
    password) is replaced by the reason, and must be given when the object is rebuilt. A subclass needs a ``@recorded``
    of its own.

    A class of somebody else is registered by a call, ``recorded(TheirNet)``: from then on its ``__init__`` notes its
    arguments first. Functions that are arguments, such as a loss of yours, are registered too;
    they stay as they are. The optimizers, schedulers, losses, layers and functions of PyTorch are known already.

    Args:
        thing: a class, an enum or a function at the top level of a module.

    Returns:
        The same class or function.

    Raises:
        InputError: it is defined inside a function, or its objects have no ``__dict__`` to keep the record in.
    """
    kind: Any = thing
    # An enum is written by the name of its member, a NamedTuple by its fields: both need no record.
    if isinstance(kind, type) and not issubclass(kind, Enum) and not hasattr(kind, "_fields"):
        if kind.__init__ is not vars(kind).get(_RECORDING):
            _record_calls(kind, register(kind))
    else:
        register(kind)
    return thing


def parameters_of(made: object) -> dict[str, Any]:
    """Return the arguments of a recorded object, as plain dicts, lists, texts and numbers that JSON can hold.

    >>> import fractions
    >>> from train_manager import recorded
    >>> Half = recorded(type("Half", (), {"__init__": lambda self, of=2: None, "__module__": "halves"}))
    >>> parameters_of(Half(of=4))
    {'object': 'halves:Half', 'arguments': {'of': 4}}

    Raises:
        InputError: the object is not recorded.
    """
    record = getattr(made, "__dict__", {}).get(RECORD)
    if record is None:
        cure = f"write @recorded above the class {type(made).__name__}"
        raise InputError(f"this {type(made).__name__} is not recorded", name="recorded", cure=cure)
    written: dict[str, Any] = as_written(record)
    return written


def record_of(name: str, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tree | None:
    """Return the record of an object that a call makes, or None if the call is going to fail."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None  # the call itself raises the error that the user expects
    # Defaults are recorded too: a later version of the class may have others.
    bound.apply_defaults()
    return {"object": name, "arguments": _arguments(signature, bound.arguments)}


def signature_of(kind: Any) -> Signature | None:
    """Return the signature of a class or a function, without `self`; None if it cannot be read."""
    method: Any = kind
    if isinstance(kind, type):
        # inspect.signature(kind) would read the __call__ of a metaclass, if there is one.
        method = kind.__new__ if kind.__init__ is object.__init__ else kind.__init__  # type: ignore[misc]
        if method is object.__new__:
            return Signature()
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # a constructor in C has no signature
        return None
    without_self = list(signature.parameters.values())[1:]
    return signature.replace(parameters=without_self) if isinstance(kind, type) else signature


def as_written(record: Tree) -> Any:
    """Return a copy of a record that stands alone: an object that is in it twice is written once, then as `same_as`."""
    places: dict[int, tuple[Step, ...]] = {}  # the first path to each record, by the id of the record
    left = MAX_VALUES

    def copied(tree: Tree, path: tuple[Step, ...], level: int) -> Tree:
        nonlocal left
        left -= 1
        # Records share subtrees, so a few of them can expand to a tree of any size.
        if left < 0 or level > MAX_LEVELS:
            return {NOT_REBUILDABLE: "one of too many values" if left < 0 else "nested too deep"}
        if isinstance(tree, list):
            return [copied(part, (*path, index), level + 1) for index, part in enumerate(tree)]
        if not isinstance(tree, dict):
            return tree
        if "object" in tree and places.setdefault(id(tree), path) != path:
            return {"same_as": list(places[id(tree)])}
        # The tags `arguments` and `dict` are not steps of a path: "model.width", not "model.arguments.width".
        below = {tag: copied_named(part, path, level) for tag, part in tree.items() if tag in ("arguments", "dict")}
        return {tag: below[tag] if tag in below else copied(part, path, level) for tag, part in tree.items()}

    def copied_named(parts: dict[str, Tree], path: tuple[Step, ...], level: int) -> Tree:
        return {name: copied(part, (*path, name), level + 1) for name, part in parts.items()}

    return copied(record, (), 0)


def _record_calls(kind: Any, name: str) -> None:
    """Let the ``__init__`` of a class record its arguments for objects of exactly this class, not of subclasses."""
    init, signature = kind.__init__, signature_of(kind)
    if not kind.__dictoffset__:
        what, cure = "has __slots__, which leave no place for a record", 'add "__dict__" to them'
        raise InputError(
            f"{kind.__name__} {what}", name="recorded", cure=f"{cure}; of a dataclass, leave slots=True out"
        )
    if signature is None:
        cure = "derive a class whose __init__ is written in Python, and record that"
        raise InputError(f"the arguments of {kind.__name__} cannot be read", name="recorded", cure=cure)
    # A class with only a __new__ of its own: object.__init__ would refuse the arguments of the new __init__.
    has_init = init is not object.__init__ or kind.__new__ is object.__new__

    @wraps(init)
    def recording(self: Any, /, *args: Any, **kwargs: Any) -> None:
        # The arguments are recorded before the call, which may change a list among them, and kept after it, when the
        # object is complete. `type(self) is kind`: super().__init__() of a recorded base must not replace the record.
        record = record_of(name, signature, args, kwargs) if type(self) is kind else None
        if has_init:
            init(self, *args, **kwargs)
        if record is not None:
            # Not by setattr(), which a user's class (such as a frozen dataclass) may refuse.
            self.__dict__[RECORD] = record

    recording.__dict__["__signature__"] = _with_self(signature)
    try:
        kind.__init__ = recording
    except TypeError as error:  # a class in C refuses new attributes
        cure = "derive a class of your own, and record that"
        raise InputError(f"{kind.__name__} cannot be changed", name="recorded", cure=cure) from error
    setattr(kind, _RECORDING, recording)


def _with_self(signature: Signature) -> Signature:
    """Return the signature with `self`, which tools show."""
    of_self = Parameter("self", Parameter.POSITIONAL_ONLY)
    try:
        return signature.replace(parameters=[of_self, *signature.parameters.values()])
    except ValueError:  # another argument has the name `self`
        return signature


def _arguments(signature: Signature, bound: Mapping[str, Any]) -> dict[str, Tree]:
    """Return the trees of arguments by name; those of ``**kwargs`` are among them."""
    values: dict[str, Any] = {}
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        if kind is Parameter.VAR_KEYWORD:
            values.update({other: item for other, item in value.items() if other not in values})
        # Empty *args are left out, so that the other arguments can be given by their names.
        elif kind is not Parameter.VAR_POSITIONAL or value:
            values[name] = value
    trees = trees_of(values)
    # A default that cannot be written, such as a function, is left out: the class has it again when it is rebuilt.
    return {
        name: tree for name, tree in trees.items() if not _is_unwritten_default(signature, name, values[name], tree)
    }


def _is_unwritten_default(signature: Signature, name: str, value: Any, tree: Tree) -> bool:
    parameter = signature.parameters.get(name)
    is_written = not (isinstance(tree, dict) and NOT_REBUILDABLE in tree)
    return not is_written and parameter is not None and value is parameter.default
