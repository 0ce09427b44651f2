"""Whether a value of a file fits a parameter: its annotation, or the type of its default."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Any, Literal, Union, get_args, get_origin

from torch import Tensor

from train_manager.learner.showing import told

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts"}


def misfit(value: Any, thing: Any, parameter: Parameter) -> str:
    """Return why a value does not fit a parameter of a class or a function; empty if it does, or nobody can say.

    >>> from inspect import signature
    >>> def shift(images, pixels: int): ...
    >>> misfit("two", shift, signature(shift).parameters["pixels"])
    "must be a whole number, but is the text 'two'"
    """
    annotation = _hints_of(thing).get(parameter.name, Parameter.empty)
    if annotation is Parameter.empty and type(parameter.default) in _PLAIN:
        kind = type(parameter.default)
        annotation = float if kind is int else kind  # `eps=1` is the default of a number
    if annotation is Parameter.empty or _fits(value, annotation):
        return ""
    return f"must be {_in_words(annotation)}, but is {told(value)}"


def _hints_of(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(vars(thing).get("__init__", thing) if isinstance(thing, type) else thing)
    except Exception:  # names of the program that are imported for type checkers alone
        return {}


def _fits(value: Any, annotation: Any) -> bool:
    if annotation in _PLAIN:
        accepted = (int, float) if annotation is float else annotation
        return isinstance(value, accepted) and (annotation is bool) == isinstance(value, bool)
    if annotation is Tensor:
        return False  # a file has no tensors
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in args)
    if origin is Literal:
        return value in args and type(value) in {type(each) for each in args}
    if annotation is None or annotation is types.NoneType:
        return value is None
    if origin is tuple:
        return _fits_tuple(value, args)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if (
        origin is not None
        and isinstance(origin, type)
        and issubclass(list, origin)
        and issubclass(origin, Sequence | list)
    ):
        return isinstance(value, list) and all(_fits(each, args[0]) for each in value)
    return True


def _fits_tuple(value: Any, args: tuple[Any, ...]) -> bool:
    if not isinstance(value, list):
        return False
    if len(args) == 2 and args[1] is ...:
        return all(_fits(each, args[0]) for each in value)
    return len(value) == len(args) and all(map(_fits, value, args))


def _in_words(annotation: Any) -> str:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        shown = [each for each in args if each not in (types.NoneType, Tensor)]  # a file has neither
        return " or ".join(dict.fromkeys(map(_in_words, shown)))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is not None:
        return _list_in_words(args) if not (isinstance(origin, type) and issubclass(origin, Mapping)) else "a table"
    return f"a {getattr(annotation, '__name__', annotation)}"


def _list_in_words(args: tuple[Any, ...]) -> str:
    kinds = dict.fromkeys(each for each in args if each is not ...)
    plural = _PLURAL.get(next(iter(kinds)), "") if len(kinds) == 1 else ""
    number = f"{len(args)} " if len(args) > 1 and ... not in args else ""
    return f"a list of {number}{plural}" if plural else "a list"
