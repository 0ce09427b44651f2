"""The names of the arguments that a class is made with: unknown ones are refused, with the names that are meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from train_manager.telling.errors import ArgumentError, did_you_mean, near
from train_manager.telling.tracebacks import hide_own_frames

P = ParamSpec("P")
Self = TypeVar("Self")

_NO_OTHER_WORDS: Mapping[str, str] = {}
USUAL: Final[Mapping[str, str]] = {
    **{"metric": "monitor", "norm": "max_norm", "save_top_k": "keep", "save_total_limit": "keep"},
    **dict.fromkeys(("every_n_epochs", "every_n_train_steps"), "save_at"),
}
"""Names that arguments of several classes have in other tools, with their names here."""

OF_ANOTHER_CLASS: Final[Mapping[str, str]] = dict.fromkeys(
    ("warmup", "warm_up", "warmup_steps", "warmup_epochs", "warmup_ratio", "num_warmup_steps"),
    "an extension of its own warms up, beside any schedule: extensions=[WarmUp(steps=...)]",
)
"""Names of arguments in other tools for what another class does here, with a sentence on what to write."""


def named_arguments(
    other_words: Mapping[str, str],
) -> Callable[[Callable[Concatenate[Self, P], None]], Callable[Concatenate[Self, P], None]]:
    """Let an ``__init__`` refuse unknown arguments with the names that are meant.

    Args:
        other_words: names of arguments in other tools, each with the name here, or with a sentence on what to write.
    """

    def decorate(init: Callable[Concatenate[Self, P], None]) -> Callable[Concatenate[Self, P], None]:
        @wraps(init)
        def checked(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
            refuse_unfitting(type(self).__name__, init, args, kwargs, other_words)
            try:
                init(self, *args, **kwargs)
            except Exception as error:  # shown at the user's line, and not at this call
                hide_own_frames(error)
                raise

        return checked

    return decorate


def refuse_unfitting(
    called: str,
    init: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    other_words: Mapping[str, str] = _NO_OTHER_WORDS,
) -> None:
    """Refuse arguments that an ``__init__`` does not take.

    Raises:
        ArgumentError: with all arguments that do not fit, and the name that may be meant by each.
    """
    # `object.__init__` has `*args, **kwargs` in its signature, but takes no argument.
    parameters = [] if init is object.__init__ else _parameters(init)
    if parameters is None:  # Python itself will refuse the arguments
        return
    kinds = {parameter.kind for parameter in parameters}
    named = [p.name for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    given = [p.name for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    unknown = [] if Parameter.VAR_KEYWORD in kinds else [name for name in kwargs if name not in named]
    if unknown:
        raise _unknown(called, unknown, named, other_words)
    if len(args) > len(given) and Parameter.VAR_POSITIONAL not in kinds:
        raise _too_many(called, len(args), given, named)
    missing = [p.name for p in parameters if is_required(p) and p.name not in (*given[: len(args)], *kwargs)]
    if missing:
        what = f"{called} needs {'the argument' if len(missing) == 1 else 'the arguments'} {_join_names(missing)}"
        cure = f"{called}({', '.join(f'{name}=...' for name in missing)})"
        raise ArgumentError(what, name=missing[0], asked_by=called, cure=cure)


def _parameters(init: Callable[..., Any]) -> list[Parameter] | None:
    try:
        # The signature of the decorator, not of the function below it: the decorator may take more arguments.
        return list(inspect.signature(init, follow_wrapped=False).parameters.values())[1:]
    except (TypeError, ValueError):  # a function in C without a signature
        return None


def is_required(parameter: Parameter) -> bool:
    """Return whether a call must give an argument for a parameter: it has no default, and is not ``*`` or ``**``."""
    is_rest = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not is_rest


def _unknown(
    called: str, unknown: Sequence[str], known: Sequence[str], other_words: Mapping[str, str]
) -> ArgumentError:
    """Make the error for unknown arguments: a cure for each, and all known names if one of them has no cure."""
    cures = {name: _cure(name, known, other_words) for name in unknown}
    lines = list(cures.values()) if len(cures) == 1 else [f"{name}: {cure}" for name, cure in cures.items() if cure]
    if not all(cures.values()):
        lines.append(f"its arguments are {', '.join(known)}" if known else "it takes none")
    return ArgumentError(
        f"{called} has no argument{'s' if len(unknown) > 1 else ''} {_join_names(unknown)}",
        name=unknown[0],
        asked_by=called,
        nearest=near(unknown[0], known),
        cure="\n  ".join(line for line in lines if line),
    )


def _cure(name: str, known: Sequence[str], other_words: Mapping[str, str]) -> str:
    """Return the cure for one unknown argument; empty if no name is like it."""
    # A word of another tool comes before a name that is only spelt alike.
    other = other_words.get(name) or next((word for word in [USUAL.get(name, "")] if word in known), "")
    if other in known:
        return f"it is called {other!r} here"
    return other or did_you_mean(near(name, known)) or OF_ANOTHER_CLASS.get(name, "")


def _too_many(called: str, count: int, given: Sequence[str], named: Sequence[str]) -> ArgumentError:
    if not named:
        what, cure = f"{called} takes no arguments, but was given {count}", f"{called}()"
    elif not given:
        what = f"all arguments of {called} are keywords, but {count} {'was' if count == 1 else 'were'} given without"
        cure = f"{called}({', '.join(f'{name}=...' for name in named[:count])})"
    else:
        what = f"{called} takes {len(given)} argument{'s' if len(given) > 1 else ''} without a keyword, but got {count}"
        cure = f"{called}({', '.join([*given, *(f'{name}=...' for name in named if name not in given)])})"
    return ArgumentError(what, name=called, asked_by=called, cure=cure)


def _join_names(names: Sequence[str]) -> str:
    *others, last = map(repr, names)
    return f"{', '.join(others)} and {last}" if others else last
