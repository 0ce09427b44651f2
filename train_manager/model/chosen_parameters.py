"""The parameters of modules by their names, and which of them patterns choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, Final

from torch import nn

from train_manager.model.modules import plain_name
from train_manager.telling.errors import InputError, did_you_mean, near

Pattern = str | Callable[[Any], object]
"""A pattern of names of parameters, or of modules around them; or a function that says whether it means a parameter."""

NamedParameters = dict[nn.Parameter, list[str]]
"""Each parameter once, with all of its names: a tied one has several."""

SHOWN: Final = 8  # names that an error lists


def named_parameters(modules: Iterable[tuple[str, nn.Module]]) -> NamedParameters:
    """Return the parameters of modules, in their order; each module comes with a prefix of its names."""
    found: NamedParameters = {}
    for prefix, module in modules:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            found.setdefault(parameter, []).append(prefix + plain_name(name))
    return found


def take_parameters(left: NamedParameters, pattern: Pattern, named: NamedParameters) -> list[nn.Parameter]:
    """Take out of ``left`` the parameters that a pattern means, and return them.

    >>> named = named_parameters([("", nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))])
    >>> left = dict(named)
    >>> len(take_parameters(left, "*.bias", named)), list(left.values())
    (2, [['0.weight'], ['1.weight']])

    Args:
        left: the parameters that no earlier pattern has taken.
        pattern: a pattern of names, or a function of a parameter.
        named: all parameters.

    Raises:
        InputError: there are none.
    """
    own = [parameter for parameter, names in left.items() if _means(pattern, parameter, names)]
    if not own:
        raise _empty(pattern, named)
    for parameter in own:
        del left[parameter]
    return own


def pattern_name(pattern: Pattern) -> str:
    """Return a pattern, or the name of a function, as a group is called."""
    return pattern if isinstance(pattern, str) else str(getattr(pattern, "__name__", type(pattern).__name__))


def list_parameters(named: NamedParameters) -> str:
    """Return the names of parameters: the first few, and how many more there are."""
    names = [names[0] for names in named.values()]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _means(pattern: Pattern, parameter: nn.Parameter, names: Iterable[str]) -> bool:
    if not isinstance(pattern, str):
        return bool(pattern(parameter))
    return any(fnmatchcase(one, pattern) for name in names for one in _with_modules(name))


def _with_modules(name: str) -> Iterable[str]:
    """Return the names of the modules around a parameter, and its own: ``0``, ``0.weight``."""
    return accumulate(name.split("."), "{}.{}".format)


def _empty(pattern: Pattern, named: NamedParameters) -> InputError:
    called = pattern_name(pattern)
    taken: NamedParameters = {one: names for one, names in named.items() if _means(pattern, one, names)}
    if taken:
        what = f"groups: earlier patterns have all parameters that {called!r} means: {list_parameters(taken)}"
        cure = f"put {called!r} before them: the first pattern that means a parameter has it"
        return InputError(what, name=called, asked_by="groups", cure=cure)
    every = [name for names in named.values() for name in names]
    # A typo is looked for in patterns of the usual forms too: "*.bias" and "blocks.*".
    last = [f"*.{name.rpartition('.')[2]}" for name in every]
    around = [one for name in every for one in [*_with_modules(name)][:-1]]
    known = [*around, *last, *(f"{one}.*" for one in around), *every]
    nearest = near(called, known) if isinstance(pattern, str) else ()
    cure = did_you_mean(nearest) or f"the parameters are {list_parameters(named)}"
    what = f"groups: {called!r} means no parameter"
    return InputError(what, name=called, asked_by="groups", nearest=nearest, cure=cure)
