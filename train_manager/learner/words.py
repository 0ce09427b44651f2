"""The words of a file: an entry ``use = "word"`` names a class or a function, and has its arguments beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, Final, NamedTuple

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim import Optimizer

from train_manager.core.extension import Extension
from train_manager.learner.argument_types import misfit
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.rebuilding.registry import is_recorded, named, words
from train_manager.rebuilding.signatures import signature_of
from train_manager.schedules import at_most, every, exponentially, periodically
from train_manager.telling.errors import InputError, near


class Kind(NamedTuple):
    """What an entry may name.

    Attributes:
        name: for messages: "a module".
        fits: whether a class or a function is of this kind.
        place: where a file names one.
        own: functions that only entries of this kind may name, beside what is registered.
    """

    name: str
    fits: Callable[[Any], bool]
    place: str = ""
    own: tuple[Callable[..., Any], ...] = ()


# They hold modules, and give nothing by themselves.
_CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def is_module(thing: Any) -> bool:
    is_one = isinstance(thing, type) and issubclass(thing, nn.Module) and not _is_loss_class(thing)
    # The widths of a lazy module would be known only once it was called.
    return is_one and not issubclass(thing, (LazyModuleMixin, *_CONTAINERS))


def _is_loss_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, nn.modules.loss._Loss)


def is_function(thing: Any) -> bool:
    return inspect.isfunction(thing) and is_recorded(thing)


def _is_loss(thing: Any) -> bool:
    is_of_torch = not isinstance(thing, type) and getattr(thing, "__module__", "") == "torch.nn.functional"
    return _is_loss_class(thing) or is_function(thing) or (is_of_torch and "target" in parameters_of(thing))


MODULE: Final = Kind("a module", is_module, "[module.a_name]")
LOSS: Final = Kind("a loss", _is_loss, "[objective.a_name]")
FUNCTION: Final = Kind("a function that is @recorded", is_function)
EXTENSION: Final = Kind(
    "an extension", lambda thing: isinstance(thing, type) and issubclass(thing, Extension), "[extension.a_name]"
)
OPTIMIZER: Final = Kind(
    "an optimizer",
    lambda thing: isinstance(thing, type) and issubclass(thing, Optimizer),
    "[self_supervised.optimizer]",
)
# Not `when`, which takes a function, and not `once`, which is not called.
_SCHEDULES: Final = (every, exponentially, at_most, periodically)
SCHEDULE: Final = Kind("a schedule", lambda thing: thing in _SCHEDULES, "eval_at", _SCHEDULES)


class Entry(NamedTuple):
    """A class or a function that a file names, and the arguments beside it.

    Attributes:
        description: the file.
        path: the place in it.
        thing: the class or the function.
        arguments: by name.
    """

    description: Description
    path: Place
    thing: Any
    arguments: dict[str, Any]

    @property
    def word(self) -> str:
        """The name of the class or the function."""
        return str(self.thing.__name__)

    def made(self, *given: Any, **more: Any) -> Any:
        """Call the class or the function with its arguments.

        Raises:
            InputError: it refuses them.
        """
        try:
            return self.thing(*given, **more, **self.arguments)
        except Exception as error:
            what = f"{self.description.at(*self.path)}: {self.word} raised {named_error(error)}"
            raise InputError(what, name=self.word, cure="see its arguments in the file, or its code") from error

    def tried(self, mistakes: Mistakes, *given: Any) -> Any:
        """Return what ``made`` returns; an error is a mistake of the file, and the result None."""
        try:
            return self.thing(*given, **self.arguments)
        except Exception as error:
            mistakes.add(
                self.description, self.path, f"is {self.word}, which refuses its arguments: {named_error(error)}"
            )
            return None


class Filled(NamedTuple):
    """The arguments that a file need not have.

    Attributes:
        leading: how many of the first parameters of a function are given data, and must not be in the file.
        one_more: whether the next parameter without a default is given data, if the file does not have it.
        following: names that may be left out, since they follow from the rest of the file.
        given: names that the program gives, and that must not be in the file.
    """

    leading: int = 0
    one_more: bool = False
    following: Collection[str] = ()
    given: Collection[str] = ()


def read_entry(
    description: Description,
    path: Place,
    table: Any,
    kind: Kind,
    mistakes: Mistakes,
    *,
    keys: Collection[str] = (),
    filled: Filled = Filled(),  # noqa: B008  # a NamedTuple does not change
) -> Entry | None:
    """Return the entry of a table; None if there is a mistake in it.

    Args:
        keys: the keys of the table that are not arguments, beside ``use``.
    """
    if not isinstance(table, Mapping):
        mistakes.add(description, path, f'must be a table with use = "...", but is {told(table)}')
        return None
    if "use" not in table:
        what = f'lacks use = "...", the name of {kind.name}'
        mistakes.add(description, path, what, nearest_of=_words_of(kind))
        return None
    thing = find_word(description, (*path, "use"), table["use"], kind, mistakes)
    if thing is None:
        return None
    arguments = {key: value for key, value in table.items() if key != "use" and key not in keys}
    if not _check(description, path, thing, arguments, filled, mistakes, keys):
        return None
    return Entry(description, path, thing, arguments)


def find_word(description: Description, path: Place, word: Any, kind: Kind, mistakes: Mistakes) -> Any | None:
    """Return the class or the function that a word means; None if it is a mistake."""
    if not isinstance(word, str):
        mistakes.add(description, path, f"must be a word in quotes, but is {told(word)}")
        return None
    found = named(word.rpartition(":")[2]) | {one.__name__: one for one in kind.own if one.__name__ == word}
    if ":" in word:
        found = {name: thing for name, thing in found.items() if name == word}
    fitting = {name: thing for name, thing in found.items() if kind.fits(thing)}
    if len({id(thing) for thing in fitting.values()}) == 1:
        return next(iter(fitting.values()))
    if fitting:
        both = " and of ".join(fitting)
        mistakes.add(
            description, path, f"is the name of {both}", cure=f'write one of these: use = "{next(iter(fitting))}"'
        )
    elif found:
        what = f"names {' and '.join(found)}, but must name {kind.name}"
        names = _words_of(kind)
        mistakes.add(description, path, what, nearest_of=names, name=word, cure=_home_of(found.values()))
    else:
        cure = "" if kind.own else "for one of your own, write @recorded above it and import its module first"
        what = f"is {told(word)}, which is not known"
        mistakes.add(description, path, what, nearest_of=_words_of(kind), name=word, cure=cure)
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


# The mode of an RNN is its class; the device is an option of the learner; a file has no type of numbers.
_NOT_IN_FILES: Final = ("mode", "device", "dtype")


def parameters_of(thing: Any) -> Mapping[str, Parameter]:
    """Return the parameters that a file may give."""
    is_class = isinstance(thing, type)
    # LSTM and its kind take ``*args`` and hand them to this class, after the mode.
    signature = signature_of(nn.RNNBase if is_class and issubclass(thing, nn.RNNBase) else thing)
    hidden = _NOT_IN_FILES if is_class and thing.__module__.startswith("torch.nn.") else ()
    parameters = {} if signature is None else signature.parameters
    return {name: parameter for name, parameter in parameters.items() if name not in hidden}


def named_error(error: Exception) -> str:
    """Return the class of an error, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__


def _check(
    description: Description,
    path: Place,
    thing: Any,
    arguments: Mapping[str, Any],
    filled: Filled,
    mistakes: Mistakes,
    keys: Collection[str],
) -> bool:
    """Compare the arguments of an entry with the signature of what it names."""
    parameters = parameters_of(thing)
    leading = [*filled.given, *([] if isinstance(thing, type) else list(parameters)[: filled.leading])]
    open_names = {name: p for name, p in parameters.items() if name not in leading}
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    before, meant = len(mistakes), set[str]()
    for name, value in arguments.items():
        if name in open_names:
            what = misfit(value, thing, open_names[name])
            if what:
                mistakes.add(description, (*path, name), what)
        elif name in leading or not takes_any:
            what = f"is not an argument of {thing.__name__}"
            names = [*open_names, *(key for key in keys if key not in open_names)]
            mistakes.add(description, (*path, name), what, nearest_of=names)
            meant.update(near(name, names)[:1])
    lacking = [name for name, parameter in open_names.items() if _is_required(parameter) and name not in arguments]
    is_given = filled.one_more and not isinstance(thing, type)
    for name in lacking[is_given:]:
        if name not in filled.following and name not in meant:
            mistakes.add(description, path, f"lacks {name}, which {thing.__name__} needs")
    return len(mistakes) == before


def _is_required(parameter: Parameter) -> bool:
    is_rest = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not is_rest
