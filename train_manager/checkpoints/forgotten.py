"""Changed numbers of extensions and managers that no checkpoint holds: a run that resumes begins them anew."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from train_manager.core.extension import Extension
from train_manager.telling.source_locations import users_level

Numbers = dict[tuple[str, str], float]
"""Numbers by the label of their object and the name of the attribute."""


def numbers_of_all(train_manager: Any) -> Numbers:
    """Return the numbers in plain attributes of a manager, and of its extensions that have no state of their own."""
    holders: dict[str, Any] = {type(train_manager).__name__: train_manager}
    holders |= {f"extension {name!r}": one for name, one in train_manager.extensions.items() if _has_no_state(one)}
    return {(label, name): value for label, one in holders.items() for name, value in _numbers(one)}


def _has_no_state(extension: Extension) -> bool:
    # Extensions of this library without a state_dict count nothing that a resume needs.
    return type(extension).state_dict is Extension.state_dict and not is_of_this_library(extension)


def is_of_this_library(extension: Extension) -> bool:
    """Return whether the class of an extension is of this library, whose private attributes need no checkpoint."""
    return type(extension).__module__.startswith("train_manager.")


def _numbers(holder: object) -> Iterator[tuple[str, float]]:
    for name, value in vars(holder).items():
        # type() and not isinstance(): a bool is a flag, not a count.
        if not name.startswith("_") and type(value) in (int, float):
            yield name, value


def warn_of_forgotten(before: Numbers, train_manager: Any) -> None:
    """Warn of numbers that have changed since the training began, once of each.

    Args:
        before: the result of ``numbers_of_all`` at the beginning; numbers in a warning are removed from it.
        train_manager: the manager that is being saved.
    """
    now = numbers_of_all(train_manager)
    # `value == value` is False for nan, which differs from itself and would always count as changed.
    changed = [key for key, value in before.items() if now.get(key, value) != value and value == value]
    # The next checkpoint of this training must not repeat the warning.
    for key in changed:
        del before[key]
    if changed:
        listed = ", ".join(f"{name} of {label}" for label, name in changed)
        what = f"no checkpoint holds {listed}, which has changed since the training began"
        cure = "return it in state_dict(), and set it in load_state_dict()"
        warnings.warn(f"{what}: a training that resumes begins it anew ({cure})", stacklevel=users_level())
