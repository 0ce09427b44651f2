"""Parts of a model, chosen by name, by pattern, or as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from train_manager.core.errors import InputError, did_you_mean, near

Chosen = str | nn.Module
"""A module itself, or its name in the model (``"trunk.0"``); a pattern (``"trunk.*"``) chooses all that match."""


def choices(given: Iterable[Chosen | Iterable[Chosen]], asked_by: str) -> list[Chosen]:
    """What was given, alone or in lists, as one list.

    Raises:
        InputError: it is empty, or something in it is neither a name nor a module.
    """
    found: list[Chosen] = []
    for one in given:
        found += [one] if isinstance(one, str | nn.Module) or not isinstance(one, Iterable) else list(one)
    if not found:
        cure = f'give names or patterns: {asked_by}("trunk", "head.*")'
        raise InputError(f"{asked_by} was given no module", name="modules", asked_by=asked_by, cure=cure)
    wrong = next((one for one in found if not isinstance(one, str | nn.Module)), None)
    if wrong is not None:
        cure = "give the module itself, its name, or a pattern"
        raise InputError(f"{asked_by} was given the module {wrong!r:.60}", name="modules", asked_by=asked_by, cure=cure)
    return found


def chosen(model: nn.Module, wanted: Iterable[Chosen], asked_by: str) -> dict[str, nn.Module]:
    """The modules of a model that are wanted, by name, without those inside them.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> list(chosen(net, ["[01]", net[2]], "FreezeModules"))
    ['0', '1', '2']

    Raises:
        InputError: a name or a pattern finds nothing, or a module is no part of the model.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, nn.Module] = {}
    for one in wanted:
        matching = {name: module for name, module in modules.items() if _is(one, name, module)}
        if not matching:
            raise _not_there(model, one, modules, asked_by)
        found |= matching
    return found


def _is(wanted: Chosen, name: str, module: nn.Module) -> bool:
    return module is wanted if isinstance(wanted, nn.Module) else name == wanted or fnmatchcase(name, wanted)


def _not_there(model: nn.Module, wanted: Chosen, modules: Mapping[str, nn.Module], asked_by: str) -> InputError:
    kind = type(model).__name__
    if isinstance(wanted, nn.Module):
        what = f"{asked_by} wants a {type(wanted).__name__} that is no part of the model ({kind})"
        return InputError(what, name="modules", asked_by=asked_by, cure="give a module of the model, or its name")
    names = [name for name in modules if name]
    nearest = near(wanted, names)
    outermost = ", ".join(name for name in names if "." not in name)
    return InputError(
        f"{asked_by} wants the module {wanted!r}, and the model ({kind}) has none of that name",
        name=wanted,
        asked_by=asked_by,
        nearest=nearest,
        cure=did_you_mean(nearest) or (f"its modules are {outermost:.200}" if outermost else "it has no modules"),
    )


def require_module(value: Any, asked_by: str) -> nn.Module:
    """The model, for an extension that works on its modules."""
    if not isinstance(value, nn.Module):
        raise InputError(
            f"{asked_by} works on a torch.nn.Module, and the model is a {type(value).__name__}, which trains itself",
            name="model",
            asked_by=asked_by,
            cure="leave it out, and do in train_step(batch) what it would do",
        )
    return value
