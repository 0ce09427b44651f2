"""The modules of a model, chosen by name, by pattern, or directly; and the test whether an object has a state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.source_locations import users_level

Chosen = str | nn.Module
"""A module, its name in the model (``"trunk.0"``), or a pattern of names (``"trunk.*"``)."""


def has_state(component: object) -> bool:
    """Return whether an object gives and takes its state, as modules, optimizers and some data do."""
    return callable(getattr(component, "state_dict", None)) and callable(getattr(component, "load_state_dict", None))


def choices(arguments: Iterable[Chosen | Iterable[Chosen]], asked_by: str) -> list[Chosen]:
    """Return all names and modules in one list; an argument is one of them, or a list.

    Raises:
        InputError: the list is empty, or an entry is neither a name nor a module.
    """
    found: list[Chosen] = []
    # A text and a Sequential can be iterated over too, but are one choice.
    for argument in arguments:
        found += [argument] if isinstance(argument, str | nn.Module) or not isinstance(argument, Iterable) else argument
    if not found:
        cure = f'give names or patterns: {asked_by}("trunk", "head.*")'
        raise InputError(f"{asked_by} was given no module", name="modules", asked_by=asked_by, cure=cure)
    wrong = next((choice for choice in found if not isinstance(choice, str | nn.Module)), None)
    if wrong is not None:
        what = f"modules of {asked_by} must be modules, names or patterns, but one is {wrong!r:.60}"
        raise InputError(what, name="modules", asked_by=asked_by)
    return found


def choose_modules(model: nn.Module, selection: Iterable[Chosen], asked_by: str) -> dict[str, nn.Module]:
    """Return the chosen modules of a model by name, without the modules inside them.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> list(choose_modules(net, ["[01]", net[2]], "FreezeModules"))
    ['0', '1', '2']

    Raises:
        InputError: a name or a pattern matches nothing, or a module is not part of the model.
    """
    modules = dict(model.named_modules(remove_duplicate=False))  # a shared module can be chosen by each of its names
    found: dict[str, nn.Module] = {}
    for choice in selection:
        matching = {name: module for name, module in modules.items() if _matches(choice, name, module)}
        if not matching:
            raise _missing_module(model, choice, modules, asked_by)
        found |= matching
    return found


def warn_of_left_out(error: InputError, warned: set[str]) -> None:
    """Warn, once for each text, that an extension leaves out modules that the present model lacks.

    A phase may train a model without the modules that an extension was given for the model around it.

    Args:
        error: names the modules that the model lacks.
        warned: the texts of the warnings so far; grows.
    """
    if error.what not in warned:
        warned.add(error.what)
        warnings.warn(f"{error.what}, and leaves it out while this model is trained", stacklevel=users_level())


def _matches(choice: Chosen, name: str, module: nn.Module) -> bool:
    return module is choice if isinstance(choice, nn.Module) else name == choice or fnmatchcase(name, choice)


def _missing_module(model: nn.Module, choice: Chosen, modules: Mapping[str, nn.Module], asked_by: str) -> InputError:
    kind = type(model).__name__
    if isinstance(choice, nn.Module):
        what = f"{asked_by} was given a {type(choice).__name__} that is not part of the model ({kind})"
        return InputError(what, name="modules", asked_by=asked_by, cure="give a module of the model, or its name")
    names = [name for name in modules if name]  # the model itself has the empty name
    nearest = near(choice, names)
    # Without a name like it, the cure lists the outermost modules: all names of a large model would fill a screen.
    outermost = ", ".join(name for name in names if "." not in name)
    return InputError(
        f"{asked_by} finds no module {choice!r} in the model ({kind})",
        name=choice,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or (f"its modules are {outermost:.200}" if outermost else "it has no modules"),
    )


def require_module(value: Any, asked_by: str) -> nn.Module:
    """Return the model, for an extension that works on its modules.

    Raises:
        InputError: the model is not a Module.
    """
    if not isinstance(value, nn.Module):
        raise InputError(
            f"{asked_by} works on a torch.nn.Module, but the model is a {type(value).__name__}, which trains itself",
            name="model",
            asked_by=asked_by,
            cure=f"leave {asked_by} out, and do its work in train_step(batch)",
        )
    return value
