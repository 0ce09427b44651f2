"""The classes and functions that a file may name: those that the program has registered, by ``module:QualName``.

A name from a file, or a short word for it, is looked up in a dict. No attribute is read for it, and nothing is imported
except an extension of this library, by its name in a table. So a file can use only what the program and this library
have registered.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import PurePath
from typing import Any, Final

from train_manager.telling.errors import CheckpointError, InputError, did_you_mean, near

_REGISTERED: Final[dict[str, Any]] = {}
# Folders of higher layers, imported only when a file names something of theirs.
_EXTENSIONS: Final = "train_manager.extensions"
_SHIPPED: Final = (_EXTENSIONS, "train_manager.learner")
_CURE: Final = "If you trust it, import the module that defines it, and write @recorded above it there"


def register(thing: Any) -> str:
    """Let files name a class or a function; return its name.

    Raises:
        InputError: it has no name at the top level of a module.
    """
    name = written_name(thing)
    if ":" not in name:
        what = f"recorded() takes a class or a function at the top level of a module, but was given {name}"
        cure = "move it out of the function, so that another process which imports the module has it too"
        raise InputError(what, name="recorded", cure=cure)
    # A class that is defined anew, as by a cell of a notebook that runs again, replaces the old one.
    _REGISTERED[name] = thing
    return name


def is_recorded(thing: Any) -> bool:
    """Return whether the program, or this library, has registered a class or a function."""
    # `is`: another class of the same name must not pass for the registered one.
    return thing is not None and _REGISTERED.get(written_name(thing)) is thing


def name_of(thing: Any) -> str | None:
    """Return the name that a file may give a class or a function."""
    return written_name(thing) if is_recorded(thing) else _torch_name(thing)


def find(name: str, at: str = "") -> Any:
    """Return the class or the function that is registered under a name.

    Args:
        name: ``module:QualName``, as read from a file.
        at: the place in the file, for the error.

    Raises:
        CheckpointError: nothing is registered under it.
    """
    room, _, thing = name.partition(":")
    if name not in _REGISTERED and room in _SHIPPED:
        importlib.import_module(room).import_one(thing)
    known = _known()
    if name in known:
        return known[name]
    nearest = _nearest(name, known)
    place = f"{at} is" if at else "it is"
    raise CheckpointError(
        f"{place} made by {name!r:.100}, which this program has not registered",
        name=name,
        nearest=nearest,
        cure=f"{did_you_mean(nearest)} {_CURE}".strip(),
    )


def named(word: str) -> dict[str, Any]:
    """Return what a short word means, by whole names: nothing, or several things if the word is ambiguous.

    >>> named("Conv2d"), list(named("EMA"))
    ({'torch.nn:Conv2d': <class 'torch.nn.modules.conv.Conv2d'>}, ['train_manager.extensions:EMA'])
    >>> list(named("relu"))
    ['torch.nn.functional:relu', 'torch:relu']

    Args:
        word: the name of a class or a function without its module; only an extension that ships is imported for it.
    """
    importlib.import_module(_EXTENSIONS).import_one(word)
    return {name: thing for name, thing in _known().items() if _word(name) == word}


def words() -> dict[str, list[str]]:
    """Return each word that ``named`` knows with its whole names; nothing is imported for it.

    >>> words()["Adam"], words()["EMA"]
    (['torch.optim:Adam'], ['train_manager.extensions:EMA'])
    """
    shipped = (f"{_EXTENSIONS}:{name}" for name in importlib.import_module(_EXTENSIONS).names())
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys([*_known(), *shipped]):
        found.setdefault(_word(name), []).append(name)
    return found


def written_name(thing: Any) -> str:
    """Return ``module:QualName``, or in words why another process could not find a thing by its name."""
    name, module = getattr(thing, "__qualname__", None), getattr(thing, "__module__", None)
    if not (isinstance(name, str) and isinstance(module, str)):
        return f"a {type(thing).__name__}"
    if "<lambda>" in name:
        return "a lambda"
    if "<locals>" in name:
        return f"{name.rpartition('.')[2]}, which is defined inside {name.split('.<locals>')[0]}()"
    return f"{_imported_as(module)}:{name}"


def _imported_as(module: str) -> str:
    package, *rest = module.split(".")
    if package == "train_manager" and len(rest) > 1:
        return f"{package}.{rest[0]}"  # without the file, so that old checkpoints find a class that has moved
    if module != "__main__":
        return module
    # `python train.py` must write the name by which a program with `from train import Net` finds the class.
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return spec.name if spec is not None else PurePath(file).stem if file else module


def _word(name: str) -> str:
    return name.rpartition(":")[2]


def _known() -> dict[str, Any]:
    from train_manager.rebuilding.torch_names import torch_names  # imported late: @recorded alone needs no torch

    return {**torch_names(), **_REGISTERED}


def _torch_name(thing: Any) -> str | None:
    if "torch" not in sys.modules:
        return None
    from train_manager.rebuilding.torch_names import name_in_torch

    return name_in_torch(thing)


def _nearest(name: str, known: dict[str, Any]) -> tuple[str, ...]:
    """Return the names that are most like one; a class of the same name in another module comes first."""
    called = _word(name)
    # A class that was moved to another module is the most frequent cause.
    moved = tuple(sorted(other for other in known if _word(other) == called))
    return moved[:3] or near(name, known)
