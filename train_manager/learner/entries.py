"""The keys of a table, and its entries: ``use = "word"`` names a class or a function, with its arguments beside it."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import Parameter
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim import Optimizer

from train_manager.core.extension import Extension
from train_manager.learner.description import FileMistakes, Spot, dotted, told
from train_manager.rebuilding.registry import is_recorded, named, words
from train_manager.rebuilding.signatures import signature_of
from train_manager.schedules import at_most, every, exponentially, periodically
from train_manager.telling.argument_names import is_required
from train_manager.telling.errors import InputError, near
from train_manager.validation import is_number

# ---- forms of values -----------------------------------------------------------------------------------------------


class ValueForm(NamedTuple):
    """What a value may be.

    Attributes:
        words: for messages: "must be ...".
        fits: whether a value has the form.
        plural: of the words, for lists of such values; empty if there is none.
        cure: what to do about a value of another form.
    """

    words: str
    fits: Callable[[Any], bool]
    plural: str = ""
    cure: str = ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, list) and value != []
    return isinstance(value, str) or (is_list and all(isinstance(name, str) for name in value))


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(table, Mapping) for table in value)


TEXT: Final = ValueForm("a text that is not empty", lambda value: isinstance(value, str) and value != "")
NAMES: Final = ValueForm("a name or a list of names", _are_names)
TABLE: Final = ValueForm("a table", lambda value: isinstance(value, Mapping))
TABLES: Final = ValueForm("a list of tables", _are_tables)
POINTS: Final = ValueForm("a word, a table or a list of these", lambda value: isinstance(value, str | Mapping | list))
COUNT: Final = ValueForm("a whole number from 1 on", lambda value: _is_whole(value) and value >= 1)
WHOLE: Final = ValueForm("a whole number from 0 on", lambda value: _is_whole(value) and 0 <= value < 2**63)
NUMBER: Final = ValueForm("a finite number", _is_finite)
SHARE: Final = ValueForm("a number above 0, at most 1", lambda value: _is_finite(value) and 0 < value <= 1)

_ANY: Final = ValueForm("anything", lambda value: True)  # of annotations that say nothing about values of files
_OF_TYPES: Final[Mapping[Any, ValueForm]] = {
    int: ValueForm("a whole number", _is_whole, "whole numbers"),
    float: ValueForm("a number", is_number, "numbers"),
    bool: ValueForm("true or false", lambda value: isinstance(value, bool)),
    str: ValueForm("a text", lambda value: isinstance(value, str), "texts"),
    Tensor: ValueForm("a tensor", lambda value: False),  # a file has no tensors
}


def form_of(annotation: Any) -> ValueForm:
    """Return the form of the values that an annotation allows.

    >>> form_of(tuple[int, int]).words, form_of(float | None).fits("0.1")
    ('a list of 2 whole numbers', False)
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _OF_TYPES.get(annotation, _ANY)
    if origin is Literal:
        return ValueForm(" or ".join(map(repr, args)), lambda value: any(_is_same(value, each) for each in args))
    if origin in (Union, types.UnionType):
        forms = [form_of(each) for each in args if each not in (types.NoneType, Tensor)]  # a file has neither
        words = " or ".join(dict.fromkeys(form.words for form in forms)) or "left out"
        return ValueForm(words, lambda value: any(form.fits(value) for form in forms))
    if origin is tuple:
        return _form_of_tuple(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return TABLE
    if isinstance(origin, type) and issubclass(list, origin) and issubclass(origin, Sequence):
        return _form_of_tuple((*args, ...))
    return _ANY


def _form_of_tuple(args: tuple[Any, ...]) -> ValueForm:
    """Return the form of lists of one kind and any length, or of one kind for each item."""
    items = [form_of(each) for each in args if each is not ...]
    plural = items[0].plural if len({item.words for item in items}) == 1 else ""
    if ... in args:
        words = f"a list of {plural}" if plural else "a list"
        return ValueForm(words, lambda value: isinstance(value, list) and all(map(items[0].fits, value)))
    words = f"a list of {len(items)} {plural}" if plural else "a list"
    return ValueForm(
        words,
        lambda value: (
            isinstance(value, list)
            and len(value) == len(items)
            and all(item.fits(one) for item, one in zip(items, value, strict=True))
        ),
    )


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


# ---- keys ----------------------------------------------------------------------------------------------------------


class Key(NamedTuple):
    """A key of a table.

    Attributes:
        form: what its value may be.
        meaning: what it is for, for the reference.
        required: whether the table must have it.
    """

    form: ValueForm
    meaning: str
    required: bool = False


def read_keys(spot: Spot, keys: Mapping[str, Key], *, has_arguments: bool = False) -> dict[str, Any]:
    """Return the values of the keys of a table that have the right form; the others are mistakes.

    Args:
        spot: of the table.
        keys: those that the table may have.
        has_arguments: whether other keys are arguments of what ``use`` names.
    """
    unknown = [] if has_arguments else [name for name in spot.value if name not in keys]
    for name in unknown:
        spot.below(name).wrong("is not a known key", nearest_of=keys)
    found = {}
    for name, key in keys.items():
        if name in spot.value and has_form(spot.below(name), key.form):
            found[name] = spot.value[name]
        elif (
            name not in spot.value and key.required and not any(name in near(other, keys)[:1] for other in unknown)
        ):  # one mistake, not two
            spot.wrong(f"lacks {name}: {key.meaning}")
    return found


def has_form(spot: Spot, form: ValueForm) -> bool:
    """Return whether a value has a form; if not, it is a mistake."""
    fits = form.fits(spot.value)
    if not fits:
        cure = _cure_of_tables(spot) if form is TABLES else form.cure
        spot.wrong(f"must be {form.words}, but is {told(spot.value)}", cure=cure)
    return fits


def _cure_of_tables(spot: Spot) -> str:
    if isinstance(spot.value, Mapping):
        return f"write [[{dotted(spot.path)}]], or {spot.path[-1]} = [{{ ... }}]"
    return 'write [{ use = "..." }]'


def read_tables(spot: Spot) -> Iterator[tuple[str, Spot]]:
    """Yield the name and the spot of each table of a table; an entry of another form is a mistake."""
    if any(isinstance(spot.value.get(key), str) for key in ("use", "from", "at")):
        spot.wrong("is a table without a name", cure=f"write [{dotted((*spot.path, 'a_name'))}]")
        return
    for name, table in spot.value.items():
        below = spot.below(name)
        if isinstance(table, Mapping):
            yield name, below
        else:
            cure = f"write [{dotted(below.path)}], in single brackets" if _are_tables(table) else ""
            below.wrong(f"must be a table, but is {told(table)}", cure=cure)


def as_names(value: str | list[str]) -> list[str]:
    """Return a list of names, of one or several."""
    return [value] if isinstance(value, str) else list(value)


def is_among(spot: Spot, name: Any, names: Collection[str], which: str) -> bool:
    """Return whether a name is among others; if not, it is a mistake, and ``which`` says what is wrong with it."""
    if name not in names:
        spot.wrong(f"names {name!r:.60}, which {which}", nearest_of=names, name=str(name))
    return name in names


# ---- words ---------------------------------------------------------------------------------------------------------

FOLLOWING: Final = {"in_features": -1, "input_size": -1, "in_channels": 1, "num_features": 1}
"""Widths of a module that follow from what feeds it: the axis of what that gives."""


class Kind(NamedTuple):
    """What an entry may name.

    Attributes:
        name: for messages: "a module".
        fits: whether a class or a function is of this kind.
        place: where a file names one.
        own: functions that only entries of this kind may name, beside what is registered.
        data: how many of the first parameters of a function are given data, and must not be in the file.
        truth: whether the next parameter without a default is given data, if the file does not have it.
        following: names that may be left out, since they follow from the rest of the file.
        given: names that the program gives, and that must not be in the file.
    """

    name: str
    fits: Callable[[Any], bool]
    place: str = ""
    own: tuple[Callable[..., Any], ...] = ()
    data: int = 0
    truth: bool = False
    following: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


# They hold modules, and give nothing by themselves.
_CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def _is_class(thing: Any, base: type) -> bool:
    return isinstance(thing, type) and issubclass(thing, base)


def is_module(thing: Any) -> bool:
    """Return whether a file may have a class as a module."""
    # The widths of a lazy module would be known only once it was called.
    is_other = any(_is_class(thing, base) for base in (nn.modules.loss._Loss, LazyModuleMixin, *_CONTAINERS))
    return _is_class(thing, nn.Module) and not is_other


def is_function(thing: Any) -> bool:
    """Return whether a thing is a function that the program, or this library, has marked ``@recorded``."""
    return inspect.isfunction(thing) and is_recorded(thing)


def _is_loss(thing: Any) -> bool:
    is_of_torch = not isinstance(thing, type) and getattr(thing, "__module__", "") == "torch.nn.functional"
    has_targets = is_of_torch and "target" in parameters_of(thing)
    return _is_class(thing, nn.modules.loss._Loss) or is_function(thing) or has_targets


# Not `when`, which takes a function, and not `once`, which is not called.
_SCHEDULES: Final = (every, exponentially, at_most, periodically)

MODULE: Final = Kind("a module", is_module, "[module.a_name]", following=tuple(FOLLOWING))
LOSS: Final = Kind("a loss", _is_loss, "[objective.a_name]", data=1, truth=True)
FUNCTION: Final = Kind("a function that is @recorded", is_function, data=1)
EXTENSION: Final = Kind("an extension", lambda thing: _is_class(thing, Extension), "[extension.a_name]")
OPTIMIZER: Final = Kind(
    "an optimizer", lambda thing: _is_class(thing, Optimizer), "[self_supervised.optimizer]", given=("params",)
)
SCHEDULE: Final = Kind("a schedule", lambda thing: thing in _SCHEDULES, "eval_at", _SCHEDULES)


def find_word(spot: Spot, kind: Kind) -> Any | None:
    """Return the class or the function that a word means; None if it is a mistake."""
    word = spot.value
    if not isinstance(word, str):
        spot.wrong(f"must be a word in quotes, but is {told(word)}")
        return None
    found = named(word.rpartition(":")[2]) | {one.__name__: one for one in kind.own if one.__name__ == word}
    if ":" in word:
        found = {name: thing for name, thing in found.items() if name == word}
    fitting = {name: thing for name, thing in found.items() if kind.fits(thing)}
    if len({id(thing) for thing in fitting.values()}) == 1:
        return next(iter(fitting.values()))
    if fitting:
        cure = f'write one of these: use = "{next(iter(fitting))}"'
        spot.wrong(f"is the name of {' and of '.join(fitting)}", cure=cure)
    elif found:
        what = f"names {' and '.join(found)}, but must name {kind.name}"
        spot.wrong(what, nearest_of=_words_of(kind), name=word, cure=_home_of(found.values()))
    else:
        cure = "" if kind.own else "for one of your own, write @recorded above it and import its module first"
        spot.wrong(f"is {told(word)}, which is not known", nearest_of=_words_of(kind), name=word, cure=cure)
    return None


def _home_of(things: Iterable[Any]) -> str:
    """Return where a file names such things; empty if nowhere."""
    for kind in (MODULE, LOSS, EXTENSION, OPTIMIZER):
        if any(kind.fits(thing) and not is_function(thing) for thing in things):
            return f"{kind.name} has its place in {kind.place}"
    if any(thing in _CONTAINERS for thing in things):
        return 'write layers = [{ use = "..." }], or a module of your own, with @recorded above it'
    return ""


@cache
def _known_words(kind: Kind, number: int) -> list[str]:
    """Return the words of a kind; ``number`` is that of all words, since a program may register more."""
    fitting = (word for word in words() if any(kind.fits(thing) for thing in named(word).values()))
    return sorted([*fitting, *(one.__name__ for one in kind.own)])


def _words_of(kind: Kind) -> list[str]:
    return _known_words(kind, len(words()))


# ---- entries -------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """A class or a function that a file names, and the arguments beside it.

    Attributes:
        spot: of its table.
        thing: the class or the function.
        arguments: by name.
    """

    spot: Spot
    thing: Any
    arguments: dict[str, Any]

    @property
    def word(self) -> str:
        """The name of the class or the function."""
        return str(self.thing.__name__)

    @property
    def where(self) -> str:
        """The file, and the line of the table."""
        return self.spot.description.at(*self.spot.path)

    def made(self, *given: Any, **more: Any) -> Any:
        """Call the class or the function with its arguments.

        Raises:
            InputError: it refuses them.
        """
        try:
            return self.thing(*given, **{**self.arguments, **more})
        except Exception as error:
            what = f"{self.where}: {self.word} raised {named_error(error)}"
            raise InputError(what, name=self.word, cure="see its arguments in the file, or its code") from error

    def tried(self, *given: Any, mistakes: FileMistakes | None = None) -> Any:
        """Return what ``made`` returns; an error is a mistake of the file, and the result None."""
        try:
            return self.thing(*given, **self.arguments)
        except Exception as error:
            what = f"is {self.word}, which refuses its arguments: {named_error(error)}"
            added_to = self.spot.mistakes if mistakes is None else mistakes
            added_to.add(self.spot.description, self.spot.path, what)
            return None


def named_error(error: Exception) -> str:
    """Return the class of an error, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__


def read_entry(spot: Spot, kind: Kind, *, keys: Collection[str] = ()) -> Entry | None:
    """Return the entry of a table; None if there is a mistake in it.

    Args:
        spot: of the table.
        kind: what it may name.
        keys: the keys of the table that are not arguments, beside ``use``.
    """
    table, before = spot.value, len(spot.mistakes)
    if not isinstance(table, Mapping):
        spot.wrong(f'must be a table with use = "...", but is {told(table)}')
        return None
    if "use" not in table:
        spot.wrong(f'lacks use = "...", the name of {kind.name}', nearest_of=_words_of(kind))
        return None
    thing = find_word(spot.below("use"), kind)
    if thing is None:
        return None
    entry = Entry(spot, thing, {key: value for key, value in table.items() if key != "use" and key not in keys})
    _check_arguments(entry, kind, keys)
    return entry if len(spot.mistakes) == before else None


# The mode of an RNN is its class; the device is an option of the learner; a file has no type of numbers.
_NOT_IN_FILES: Final = ("mode", "device", "dtype")


def parameters_of(thing: Any) -> Mapping[str, Parameter]:
    """Return the parameters that a file may give."""
    # LSTM and its kind take ``*args`` and hand them to this class, after the mode.
    signature = signature_of(nn.RNNBase if _is_class(thing, nn.RNNBase) else thing)
    hidden = _NOT_IN_FILES if isinstance(thing, type) and thing.__module__.startswith("torch.nn.") else ()
    parameters = {} if signature is None else signature.parameters
    return {name: parameter for name, parameter in parameters.items() if name not in hidden}


def _check_arguments(entry: Entry, kind: Kind, keys: Collection[str]) -> None:
    """Compare the arguments of an entry with the signature of what it names."""
    spot, thing, arguments = entry
    parameters, is_called = parameters_of(thing), not isinstance(thing, type)
    hidden = [*kind.given, *(list(parameters)[: kind.data] if is_called else [])]
    allowed = {name: parameter for name, parameter in parameters.items() if name not in hidden}
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    meant = set[str]()
    for name in arguments:
        if name in allowed:
            has_form(spot.below(name), _form_of_parameter(thing, allowed[name]))
        elif name in hidden or not takes_any:
            names = [*allowed, *(key for key in keys if key not in allowed)]
            spot.below(name).wrong(f"is not an argument of {entry.word}", nearest_of=names)
            meant.update(near(name, names)[:1])  # one mistake each, not two
    lacking = [name for name, parameter in allowed.items() if is_required(parameter) and name not in arguments]
    for name in lacking[kind.truth and is_called :]:
        if name not in kind.following and name not in meant:
            spot.wrong(f"lacks {name}, which {entry.word} needs")


def _form_of_parameter(thing: Any, parameter: Parameter) -> ValueForm:
    """Return the form that the annotation of a parameter says, or the type of its default."""
    annotation = _hints_of(thing).get(parameter.name)
    if annotation is None and type(parameter.default) in _OF_TYPES:
        kind = type(parameter.default)
        annotation = float if kind is int else kind  # `eps=1` is the default of a number
    return form_of(annotation)


def _hints_of(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(vars(thing).get("__init__", thing) if isinstance(thing, type) else thing)
    except Exception:  # names of the program that are imported for type checkers alone
        return {}
