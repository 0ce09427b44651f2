"""The modules of a model, chosen by name, by pattern, or directly; and the test whether an object has a state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, final

from torch import nn

from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.source_locations import users_level

OWN_OF_PYTORCH: Final = "_orig_mod"  # the name of the user's module inside of the one that torch.compile makes

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


def plain_name(name: str) -> str:
    """Return the name of a parameter or module without the additions of ``torch.compile``.

    >>> plain_name("trunk._orig_mod.0.weight"), plain_name("trunk._orig_mod")
    ('trunk.0.weight', 'trunk')
    """
    return ".".join(part for part in name.split(".") if part != OWN_OF_PYTORCH)


def choose_modules(model: nn.Module, selection: Iterable[Chosen], asked_by: str) -> dict[str, nn.Module]:
    """Return the chosen modules of a model by plain name, without the modules inside them.

    Of a compiled module, the one inside is returned, which has the parameters.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> list(choose_modules(net, ["[01]", net[2]], "FreezeModules"))
    ['0', '1', '2']

    Raises:
        InputError: a name or a pattern matches nothing, or a module is not part of the model.
    """
    # A shared module can be chosen by each of its names.
    modules = [(name, _own(module)) for name, module in model.named_modules(remove_duplicate=False)]
    found: dict[str, nn.Module] = {}
    for choice in selection:
        matching = {plain_name(name): module for name, module in modules if _matches(choice, name, module)}
        if not matching:
            raise _missing_module(model, choice, [plain_name(name) for name, _ in modules], asked_by)
        found |= matching
    return found


@final
class ModulesIn:
    """The modules that an extension was given, in the model that is trained now; a phase may train another model.

    Args:
        selection: the names and modules.
        asked_by: the extension.
        find: returns by name what a choice stands for in a model; if it is not given, the modules themselves.
    """

    def __init__(
        self,
        selection: Iterable[Chosen],
        asked_by: str,
        find: Callable[[nn.Module, Chosen], Mapping[str, Any]] | None = None,
    ) -> None:
        self._selection, self._asked_by = list(selection), asked_by
        self._find = find or partial(_choose_one, asked_by=asked_by)
        self._warned: set[str] = set()  # the texts of the warnings so far

    def of(self, model: Any, *, warns: bool = True) -> dict[str, Any]:
        """Return what is there by name; warn, once for each text, of what the model lacks."""
        found: dict[str, Any] = {}
        for choice in self._selection:
            try:
                found |= self._find(require_module(model, self._asked_by), choice)
            except InputError as error:
                if warns and error.what not in self._warned:
                    self._warned.add(error.what)
                    what = f"{error.what}, and leaves it out while this model is trained"
                    warnings.warn(what, stacklevel=users_level())
        return found


def _choose_one(model: nn.Module, choice: Chosen, asked_by: str) -> dict[str, nn.Module]:
    return choose_modules(model, [choice], asked_by)


def _matches(choice: Chosen, name: str, module: nn.Module) -> bool:
    if isinstance(choice, nn.Module):
        return module is _own(choice)
    name = name if OWN_OF_PYTORCH in choice else plain_name(name)
    return name == choice or fnmatchcase(name, choice)


def _own(module: nn.Module) -> nn.Module:
    """Return a module of the user, also if ``torch.compile`` has wrapped it."""
    inner = module._modules.get(OWN_OF_PYTORCH)
    return module if inner is None else inner


def _missing_module(model: nn.Module, choice: Chosen, named: Iterable[str], asked_by: str) -> InputError:
    kind = type(_own(model)).__name__
    if isinstance(choice, nn.Module):
        what = f"{asked_by} was given a {type(choice).__name__} that is not part of the model ({kind})"
        return InputError(what, name="modules", asked_by=asked_by, cure="give a module of the model, or its name")
    names = [name for name in named if name]  # the model itself has the empty name
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
