"""The decorator that registers a class and records the arguments of its constructor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, Final, TypeVar

from train_manager.files.json_values import DEEPEST, mark_of
from train_manager.rebuilding.record_tree import NOT_REBUILDABLE, RecordPath, Tree, parts_of, with_parts
from train_manager.rebuilding.registry import register
from train_manager.rebuilding.signatures import arguments_by_name, signature_of
from train_manager.rebuilding.value_trees import RECORD, trees_of
from train_manager.telling.errors import InputError

T = TypeVar("T")

MAX_LEVELS: Final = DEEPEST - 10  # of JSON in one record, which is a part of a state

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
    {'$object': 'halves:Half', 'arguments': {'of': 4}}

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
    values = arguments_by_name(bound)
    trees = trees_of(values)
    # A default that cannot be written, such as a function, is left out: the class has it again when it is rebuilt.
    left_out = {name for name, tree in trees.items() if _is_unwritten_default(signature, name, values[name], tree)}
    return {"$object": name, "arguments": {name: tree for name, tree in trees.items() if name not in left_out}}


def as_written(record: Tree) -> Any:
    """Return a copy of a record that stands alone: an object that is in it twice is written once, then as ``$same``."""
    places: dict[int, RecordPath] = {}  # the first path to each record, by the id of the record

    def copied(tree: Tree, path: RecordPath, level: int) -> Tree:
        # Records hold each other, so together they may be deeper than a checkpoint that can be read again.
        if level > MAX_LEVELS:
            return {NOT_REBUILDABLE: "nested too deep"}
        mark = mark_of(tree)
        if mark == "$object" and places.setdefault(id(tree), path) != path:
            return {"$same": list(places[id(tree)])}
        below = level + (1 if mark is None else 2)  # a mark and its content are two levels of JSON
        return with_parts(tree, {step: copied(part, (*path, step), below) for step, part in parts_of(tree).items()})

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


def _is_unwritten_default(signature: Signature, name: str, value: Any, tree: Tree) -> bool:
    parameter = signature.parameters.get(name)
    is_written = not (isinstance(tree, dict) and NOT_REBUILDABLE in tree)
    return not is_written and parameter is not None and value is parameter.default
