"""Names of the library that a subclass of a manager may not take."""

from __future__ import annotations

import inspect
from collections.abc import Iterator


def private_names_of_others(cls: type, base: type) -> Iterator[str]:
    """Yield the private names of the library's classes that a new class, or a mixin of it, defines once more.

    Args:
        cls: the new class.
        base: the class that all managers have.
    """
    library = [one for one in cls.__mro__ if one.__module__.startswith("train_manager.")]
    taken = {name for one in library for name in (*vars(one), *inspect.get_annotations(one))}
    # Not of a class of managers that was made before: the library itself has set attributes of it since.
    new = [cls, *(one for one in cls.__mro__ if not issubclass(one, base))]
    defined = (name for one in new if one not in library for name in vars(one))
    return (name for name in defined if name in taken and name.startswith("_") and not name.endswith("_"))


def taken_error(cls: type, does: str, name: str, cure: str) -> TypeError:
    """Return the error for a class, or an object of it, that takes a name of the library."""
    return TypeError(f"{cls.__name__} {does} {name!r}, which each TrainManager has of its own ({cure})")
